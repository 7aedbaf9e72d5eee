// Elements without HTML: whatever a name holds, it is shown as text.

export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function show(place, ...children) {
  place.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

export const byId = (id) => document.getElementById(id);

let hiding;

// Says something to the eye and to a screen reader; a mistake stays longer.
export function say(text, wrong = false) {
  const place = byId("said");
  place.textContent = text;
  place.classList.toggle("wrong", wrong);
  place.classList.add("shown");
  clearTimeout(hiding);
  hiding = setTimeout(() => place.classList.remove("shown"), wrong ? 12000 : 5000);
}

// Runs what a person asked for; what went wrong is said in its one line.
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    say(error.message, true);
    return undefined;
  }
}

export function button(text, action, properties = {}) {
  const node = el("button", { type: "button", ...properties }, text);
  node.addEventListener("click", async () => {
    await keepingFocus(async () => {
      node.disabled = true;
      await attempt(action);
      node.disabled = false;
    });
  });
  return node;
}

// Whoever works by keys stays where they were, or close by, when what they were on is drawn anew.
export async function keepingFocus(action) {
  const [node, card] = [document.activeElement, within(document.activeElement)];
  await action();
  if (lost(node) || !lost(document.activeElement)) return;
  const again = [...document.querySelectorAll("main > section:not([hidden]) :is(button, input, select):not(:disabled)")];
  const alike = again.filter((one) => called(one) === called(node));
  const near = alike.find((one) => within(one) === card);
  const kept = node.isConnected && !node.closest("[hidden]") ? node : (node.id && byId(node.id)) || near || byId("main");
  kept.focus();
}

const called = (node) => node.ariaLabel || node.textContent;
const within = (node) => node?.parentElement?.closest("[aria-label]")?.ariaLabel;
const lost = (node) => !node || node === document.body;

// Asks in a dialog; resolves to the text given, to "" where none was asked for, or to null.
export function ask(question, { value = null, choices = null, yes = "OK" } = {}) {
  return new Promise((resolve) => {
    const field = choices
      ? el("select", { "aria-label": question }, ...choices.map((name) => el("option", { value: name }, name)))
      : value === null ? null : el("input", { value, "aria-label": question, required: true, maxLength: 100 });
    const dialog = el("dialog", { "aria-label": question },
      el("form", { method: "dialog" },
        el("p", {}, question), field,
        el("div", { className: "row end" },
          el("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
          el("button", { value: "yes", className: "main" }, yes))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? (field ? field.value.trim() : "") : null);
    });
    document.body.append(dialog);
    dialog.showModal();
    if (field && field.select) field.select();
  });
}

export const counted = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

export const percent = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(0)} %`);
