// History: lessons as a list, accuracy over them as a chart.

import * as api from "./api.js";
import { chart } from "./chart.js";
import { button, el, percent, say, show } from "./dom.js";

const MOST = 8;

export async function showHistory(node, refresh) {
  const { records } = await api.get("/lessons");
  if (!records.length) {
    show(node, el("p", { className: "quiet" }, "No lesson yet."));
    return;
  }
  const undo = api.state.about.can_undo ? button("Undo the last change", async () => {
    await api.post("/undo");
    await refresh();
    say(api.state.about.keeps_pictures ? "Undone: the pictures of that lesson wait again" : "Undone; its pictures were not kept");
  }) : null;
  const lines = [{ name: "all classes", values: records.map((record) => record.accuracy), bold: true }];
  for (const row of api.state.about.classes.slice(0, MOST)) {
    const before = Array(Math.max(0, records.length - row.accuracy.length)).fill(null);
    if (row.accuracy.length) lines.push({ name: row.name, values: [...before, ...row.accuracy] });
  }
  const key = el("ul", { className: "key" }, ...lines.map((line, i) => el("li", { className: `line-${i % 8} ${line.bold ? "bold" : ""}` }, line.name)));
  const rows = records.map((record, i) => el("tr", {}, el("td", {}, `${i + 1}`), el("td", {}, record.date),
    el("td", {}, record.what || "lesson"), el("td", {}, `${record.images}`), el("td", {}, `${record.new}`),
    el("td", {}, percent(record.accuracy)), el("td", {}, `${record.seconds.toFixed(0)} s`)));
  show(node, el("div", { className: "row" }, el("h2", {}, "Accuracy after each lesson"), el("span", { className: "space" }), undo),
    el("div", { className: "card" }, chart(lines, "Accuracy after each lesson; the table below has the numbers"), key),
    el("div", { className: "card scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ...["", "date", "what", "pictures", "new classes", "accuracy", "time"].map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, ...rows))));
}
