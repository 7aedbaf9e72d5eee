// The wall of classes, what comes in, and the lesson.

import * as api from "./api.js";
import { ask, attempt, button, counted, el, percent, say, show } from "./dom.js";
import { camera, dropPlace, takesDrops } from "./files.js";

const PAGE = 100;
const RETRY = 3000;
const chosen = new Set();
let following = null;
// What a person has begun to say and not yet sent stays when the page is drawn anew.
let draft = {};
let place;
let refresh;

export async function showClasses(node, again) {
  [place, refresh] = [node, again];
  unmark();
  const { about } = api.state;
  if (draft.model !== api.state.model) draft = { model: api.state.model, name: "" };
  const lesson = el("div", { className: "card", id: "lesson" });
  const wall = el("div", { className: "wall" }, ...about.classes.map(card));
  const drops = el("div", { className: "drops" },
    dropPlace("Drop a folder for each class, or a zip of them", (files) => take(files, {}), { folder: true }),
    newClass(),
    dropPlace(`Drop unlabelled pictures (${about.unlabelled} here): “Mend” says which to label`, (files) => take(files, { unlabelled: true })));
  const sentence = about.sentence ? el("p", { className: "lead" }, about.sentence) : null;
  show(node, sentence, lesson, el("div", { id: "sending" }), el("div", { id: "camera" }), drops, wall,
    about.about ? el("p", { className: "quiet" }, about.about) : null);
  await lessonCard(lesson);
}

function newClass() {
  const name = el("input", { placeholder: "name of a new class", "aria-label": "Name of a new class", maxLength: 100, value: draft.name });
  name.addEventListener("input", () => { draft.name = name.value; });
  const named = (then) => () => {
    if (name.value.trim()) return then(name.value.trim());
    say("Name the class first", true);
    name.focus();
    return undefined;
  };
  const node = dropPlace("Drop pictures onto a new class", (files) => named((label) => take(files, { class: label }))());
  node.prepend(name);
  node.append(button("Use the camera", named((label) => burst(label))));
  return node;
}

const burst = (label) => camera(place.querySelector("#camera"), true, (files) => take(files, { class: label }));

async function take(files, query) {
  await attempt(async () => {
    if (!files.length) throw new Error("There is no picture among these (png, jpg, webp, bmp, gif or zip)");
    const bar = el("progress", { max: files.length, value: 0, "aria-label": "Pictures sent" });
    const line = el("span", {}, `0 of ${files.length} sent`);
    show(place.querySelector("#sending"), el("div", { className: "card row" }, bar, line));
    const came = await api.upload(files, query, (done, total) => { bar.value = done; line.textContent = `${done} of ${total} sent`; });
    if (query.class === draft.name.trim()) draft.name = "";
    const count = Object.values(came.kept).reduce((a, b) => a + b, 0);
    const left = [came.doubled ? `${came.doubled} were here before` : "", came.passed_over ? `${came.passed_over} passed over` : ""];
    say([`${counted(count, "picture")} kept`, ...left].filter(Boolean).join(", "));
    await refresh();
    if (came.why.length) show(place.querySelector("#sending"),
      el("details", { className: "card" }, el("summary", {}, `${counted(came.passed_over, "file")} passed over`), el("ul", {}, ...came.why.map((why) => el("li", {}, why)))));
  });
  if (place.querySelector("#sending progress")) show(place.querySelector("#sending"));
}

function card(row) {
  const last = row.accuracy.length ? row.accuracy[row.accuracy.length - 1] : null;
  const counts = [row.known ? `${row.known} learnt` : "", row.waiting ? `${row.waiting} waiting` : ""].filter(Boolean).join(", ");
  const pictures = el("div", { className: "pictures" }, ...row.pictures.map((id, i) => picture(id, row.name, i + 1)));
  const more = row.kept > row.pictures.length ? button(`All ${row.kept} pictures`, () => all(row, pictures, more)) : null;
  const node = el("article", { className: "card class", "aria-label": `class ${row.name}` },
    el("div", { className: "row" }, el("h2", {}, row.name), el("span", { className: "space" }),
      last === null ? null : el("span", { className: "badge", title: "accuracy on pictures left out of the fit" }, percent(last))),
    el("p", { className: "quiet" }, counts), row.kept ? null : el("p", { className: "quiet" }, absent()), pictures, more,
    el("div", { className: "row tools" },
      button("Add", () => { input.click(); }, { title: "Add pictures" }),
      button("Camera", () => burst(row.name)),
      button("Rename", () => rename(row.name)),
      button("Merge", () => merge(row.name)),
      button("Forget", () => forget(row.name), { className: "danger" })));
  const input = el("input", { type: "file", multiple: true, hidden: true, accept: "image/*,.zip" });
  input.addEventListener("change", () => take([...input.files].map((file) => ({ file, name: file.name })), { class: row.name }));
  node.append(input);
  takesDrops(node, (files) => take(files, { class: row.name }));
  return node;
}

const absent = () => (api.state.about.keeps_pictures
  ? "Its pictures are not here: it was taught by the command line, which keeps none." : "Its pictures are not kept.");

function picture(id, name, number) {
  const node = el("button", { type: "button", className: "picture", "aria-pressed": "false", "aria-label": `picture ${number} of ${name}` },
    el("img", { src: api.thumbnail(id), alt: "", loading: "lazy", width: 64, height: 64 }));
  node.addEventListener("click", () => {
    const on = !chosen.has(id);
    if (on) chosen.add(id); else chosen.delete(id);
    node.setAttribute("aria-pressed", on);
    tools();
  });
  return node;
}

async function all(row, pictures, more) {
  const found = await api.get(`/pictures?${new URLSearchParams({ class: row.name, start: pictures.children.length, count: PAGE })}`);
  const before = pictures.children.length;
  pictures.append(...found.pictures.map((one, i) => picture(one.id, row.name, before + i + 1)));
  more.textContent = `${pictures.children.length} of ${found.total}: more`;
  if (pictures.children.length >= found.total) more.remove();
}

function unmark() {
  chosen.clear();
  tools();
}

// What can be done with the pictures that are marked.
function tools() {
  document.querySelector("#marked")?.remove();
  if (!chosen.size) return;
  const ids = [...chosen];
  const done = async (line) => { unmark(); await refresh(); say(line); };
  document.body.append(el("div", { id: "marked", className: "card row", role: "toolbar", "aria-label": "marked pictures" },
    el("span", {}, `${ids.length} marked`),
    button("Move", async () => {
      const to = await ask("To which class?", { choices: api.state.about.classes.map((row) => row.name), yes: "Move" });
      if (to) { await api.post("/pictures/move", { ids, to }); await done(`${ids.length} moved to ${to}`); }
    }),
    button("Delete", async () => {
      if (await ask(`Delete ${counted(ids.length, "picture")}? The model forgets what it has learnt of ${ids.length === 1 ? "it" : "them"}.`, { yes: "Delete" }) === null) return;
      await api.post("/pictures/delete", { ids });
      await done(`${ids.length} deleted`);
    }, { className: "danger" })));
}

async function rename(name) {
  const to = await ask(`A new name for ${name}`, { value: name, yes: "Rename" });
  if (!to || to === name) return;
  await api.post("/rename", { name, to });
  await refresh();
}

async function merge(name) {
  const others = api.state.about.classes.map((row) => row.name).filter((other) => other !== name);
  const into = await ask(`Make one class of ${name} and`, { choices: others, yes: "Merge" });
  if (!into) return;
  await api.post("/merge", { names: [name, into], into });
  await refresh();
}

async function forget(name) {
  if (await ask(`Forget ${name}? Its pictures here are deleted. This cannot be undone.`, { yes: "Forget" }) === null) return;
  await api.post("/forget", { names: [name] });
  await refresh();
  say(`${name} is forgotten`);
}

// The lesson: what it will do, how far it is, what came of it.

async function lessonCard(node) {
  const { lesson } = api.state.about;
  if (lesson && lesson.state === "running") {
    running(node, lesson);
    return;
  }
  const estimate = await api.get(draft.epochs ? `/lessons/estimate?epochs=${draft.epochs}` : "/lessons/estimate");
  const said = el("p", {}, estimate.sentence);
  const wanted = settings(estimate, said);
  const teach = button(estimate.goes_on ? "Go on" : "Teach", async () => { await begun(node, wanted.given()); }, { className: "main", id: "teach" });
  const afresh = button("Begin afresh", async () => { await begun(node, { afresh: true }); }, { id: "afresh" });
  const undo = button("Undo the last lesson", () => undone(), { id: "undo" });
  if (!estimate.images) teach.disabled = true;
  show(node, el("div", { className: "row" }, said, el("span", { className: "space" }),
    api.state.about.can_undo ? undo : null, estimate.kept ? afresh : null, teach), wanted.node, lesson ? outcome(lesson) : null);
}

async function begun(node, given) {
  const lesson = await api.post("/lessons", given);
  draft = { model: draft.model, name: draft.name };
  running(node, lesson);
}

// What can be said of a lesson whose network trains; the exact learner has no such settings.
function settings(estimate, said) {
  const { about } = api.state;
  if (about.kind === "exact" || !estimate.images || estimate.goes_on) return { node: null, given: () => ({}) };
  const epochs = el("input", { type: "number", min: 1, max: 10000, value: estimate.epochs, id: "epochs" });
  epochs.addEventListener("change", () => attempt(async () => {
    if (!epochs.reportValidity()) return;
    draft.epochs = epochs.value;
    said.textContent = (await api.get(`/lessons/estimate?epochs=${epochs.value}`)).sentence;
  }));
  const pile = el("input", { type: "checkbox", id: "unlabelled", checked: draft.unlabelled ?? about.uses_unlabelled === "must" });
  pile.addEventListener("change", () => { draft.unlabelled = pile.checked; });
  const offers = about.uses_unlabelled !== "no" && about.unlabelled;
  const must = about.uses_unlabelled === "must" && !about.unlabelled ? el("span", { className: "quiet" }, "Its method needs unlabelled pictures: drop some.") : null;
  return {
    node: el("div", { className: "row" }, el("label", {}, "Epochs ", epochs), must,
      offers ? el("label", {}, pile, ` learn from the ${about.unlabelled} unlabelled pictures, too`) : null),
    given: () => ({ epochs: Number(epochs.value) || null, unlabelled: Boolean(offers) && pile.checked }),
  };
}

async function undone() {
  await api.post("/undo");
  await refresh();
  say(api.state.about.keeps_pictures ? "Undone: the pictures of that lesson wait again"
    : "Undone. The pictures of that lesson were not kept: send them again to teach them anew");
}

function running(node, first) {
  const bar = el("progress", { max: 1, "aria-label": "Progress of the lesson" });
  const line = el("p", { "aria-live": "polite" }, "");
  const stop = button("Cancel", async () => { await api.remove("/lessons/current"); });
  show(node, el("div", { className: "row" }, bar, line, el("span", { className: "space" }), stop));
  const told = (progress) => {
    if (progress.total) bar.value = progress.done / progress.total;
    const left = progress.seconds_left === null ? "" : `, about ${Math.ceil(progress.seconds_left)} s left`;
    const count = progress.total ? ` ${Math.round(progress.done)} of ${Math.round(progress.total)}` : "";
    line.textContent = `${progress.stage}${count}${progress.note ? `, ${progress.note}` : ""}${left}`;
  };
  told(first);
  following?.close();
  following = api.follow((progress) => {
    if (progress.state === "running") { told(progress); return; }
    say(progress.state === "done" ? `Taught in ${progress.seconds.toFixed(0)} s` : progress.error, progress.state === "failed");
    attempt(refresh);
  }, (closed) => {
    line.textContent = "The connection is lost; the lesson goes on where the server runs. Trying again …";
    if (closed) setTimeout(() => attempt(refresh), RETRY);
  });
}

function outcome(lesson) {
  if (lesson.state !== "done") return el("p", { className: "quiet" }, lesson.error);
  const names = Object.keys(lesson.after);
  const rows = names.map((name) => {
    const [was, is] = [lesson.before[name], lesson.after[name]];
    const known = was !== undefined && was !== null && is !== null;
    const change = known ? is - was : 0;
    const shown = !known ? "new" : Math.abs(change) < 0.5 ? "=" : `${change > 0 ? "+" : "−"}${Math.abs(change).toFixed(0)}`;
    const mood = change <= -0.5 ? "worse" : change >= 0.5 ? "better" : "";
    return el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, percent(was)), el("td", {}, percent(is)), el("td", { className: mood }, shown));
  });
  return el("details", { open: names.length <= 12, id: "outcome" },
    el("summary", {}, `The last lesson: ${counted(lesson.images, "picture")} in ${lesson.seconds.toFixed(0)} s`),
    el("div", { className: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ...["class", "before", "after", "change"].map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, ...rows))),
    el("p", { className: "quiet" }, "Accuracy on pictures the judged classifier had not learnt.", api.state.about.kind === "exact"
      ? " The exact learner forgets nothing: what a known class loses, it loses to the more classes there are to choose from." : ""));
}
