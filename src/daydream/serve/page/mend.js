// Mend: pictures the model doubts, and those to label next, one key for each class.

import * as api from "./api.js";
import { attempt, button, el, say, show } from "./dom.js";

const WORDS = {
  mislabelled: (doubt) => `given as ${doubt.name}, looks like ${doubt.other}`,
  doubled: (doubt) => `of ${doubt.name}; the same picture is in ${doubt.other}`,
  odd: (doubt) => `of ${doubt.name}, unlike its others`,
};
const NEXT = 20;
const sentence = ({ message }) => `${message[0].toUpperCase()}${message.slice(1)}.`;
let keyed = null;

export async function showMend(node, refresh) {
  const doubts = el("div", {});
  const next = el("div", {});
  show(node, el("h2", {}, "Pictures to look at again"), doubts, el("h2", {}, "To label next"), next);
  await Promise.all([showDoubts(doubts, refresh), showNext(next)]);
}

// Why nothing can be asked now; null where it can.
function silent() {
  const { about } = api.state;
  if (about.lesson && about.lesson.state === "running") return "A lesson is under way: come back when it is done.";
  if (!about.classes.some((row) => row.known)) return "The model knows no class yet: teach it first.";
  return about.kind === "adapting" ? "Only the exact learner can say this: a network that was trained on its pictures finds them all likely." : null;
}

async function showDoubts(place, refresh) {
  if (silent()) {
    show(place, el("p", { className: "quiet" }, silent()));
    return;
  }
  show(place, el("p", { className: "quiet" }, "Looking …"));
  let found;
  try {
    found = await api.get("/doubts");
  } catch (error) {
    show(place, el("p", { className: "quiet" }, sentence(error)));
    return;
  }
  if (!found.length) {
    show(place, el("p", { className: "quiet" }, "No picture looks mislabelled, doubled or odd."));
    return;
  }
  const done = async (action) => { await action(); await refresh(); };
  show(place, el("ul", { className: "list" }, ...found.slice(0, 60).map((doubt) => {
    const ids = [doubt.id];
    return el("li", { className: "card row" },
      doubt.kept ? el("img", { src: api.thumbnail(doubt.id), alt: "", width: 64, height: 64 }) : null,
      el("span", {}, WORDS[doubt.kind](doubt)), el("span", { className: "space" }),
      doubt.kind === "mislabelled" ? button(`It is ${doubt.other}`, () => done(() => api.post("/pictures/move", { ids, to: doubt.other }))) : null,
      button("Right as it is", () => done(() => api.post("/pictures/right", { ids }))),
      button("Delete", () => done(() => api.post("/pictures/delete", { ids })), { className: "danger" }));
  })));
}

async function showNext(place) {
  if (silent() || !api.state.about.unlabelled) {
    show(place, el("p", { className: "quiet" }, silent() || "There are no unlabelled pictures: drop some under Classes."));
    return;
  }
  let ids;
  try {
    ids = await api.get(`/next?count=${NEXT}`);
  } catch (error) {
    show(place, el("p", { className: "quiet" }, sentence(error)));
    return;
  }
  label(place, ids);
}

const KEYS = "123456789abcdefghijklmnopqrstuvwxyz";

function label(place, ids) {
  document.removeEventListener("keydown", keyed);
  if (!ids.length) {
    show(place, el("p", { className: "quiet" }, "All of these are labelled: teach them, and more may be asked."));
    return;
  }
  const [one, ...rest] = ids;
  const names = api.state.about.classes.map((row) => row.name);
  const put = (name) => attempt(async () => {
    await api.post("/pictures/move", { ids: [one], to: name });
    say(`${name}: waits for the next lesson`);
    label(place, rest);
  });
  keyed = (event) => {
    const name = names[KEYS.indexOf(event.key)];
    const typing = event.target.closest("input, select, dialog");
    if (!place.isConnected || place.closest("[hidden]")) document.removeEventListener("keydown", keyed);
    else if (name && event.key.length === 1 && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) put(name);
  };
  document.addEventListener("keydown", keyed);
  show(place, el("div", { className: "card answer" },
    el("img", { src: api.thumbnail(one, 256), alt: "an unlabelled picture", width: 200, height: 200 }),
    el("div", {}, el("p", {}, `What is this? ${ids.length} to go.`),
      el("div", { className: "row wrap" }, ...names.map((name, i) => button(KEYS[i] ? `${KEYS[i]} · ${name}` : name, () => put(name))),
        button("Skip", () => label(place, rest)),
        button("Delete", async () => { await api.post("/pictures/delete", { ids: [one] }); label(place, rest); }, { className: "danger" })))));
}
