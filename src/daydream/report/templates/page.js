"use strict";
const root = document.documentElement;
const drawn = JSON.parse(document.getElementById("drawn").textContent);
const config = {
  responsive: true, displaylogo: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};
const plots = new Map();  // each plot's element: its figure and the hidden runs of its section

function colour(name) { return getComputedStyle(root).getPropertyValue(name).trim(); }

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function isMap(figure) { return figure.data.some((trace) => trace.type === "heatmap"); }

function themedAxis(axis) {
  const line = { gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--grid") };
  return { automargin: true, ticks: "", ...line, ...axis, title: { standoff: 8, ...(axis || {}).title } };
}

function themed(figure) {
  const layout = figure.layout;
  const scale = [[0, colour("--low")], [figure.stretched ? 0.15 : 0.5, colour("--middle")], [1, colour("--high")]];
  const coloured = layout.coloraxis && {
    ...layout.coloraxis, colorscale: scale,
    colorbar: { ...layout.coloraxis.colorbar, thickness: 10, outlinewidth: 0, len: 1 },
  };
  const xaxis = themedAxis(layout.xaxis), yaxis = themedAxis(layout.yaxis);
  if (isMap(figure)) {
    xaxis.showgrid = yaxis.showgrid = false;
  }
  return {
    showlegend: false, hovermode: isMap(figure) ? "closest" : "x unified", uirevision: "kept",
    ...layout, xaxis, yaxis, ...(coloured ? { coloraxis: coloured } : {}),
    shapes: (layout.shapes || []).map((shape) => ({ ...shape, line: { color: colour("--soft"), width: 0.6 } })),
    margin: { l: 10, r: 12, t: 12, b: 10 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 }, traceorder: "normal" },
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--ink") },
    hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  };
}

function draw(plot) {
  const { figure, hidden } = plots.get(plot);
  const data = figure.data.map((trace) => ({ ...trace, visible: !hidden.has(trace.meta) }));
  return Plotly.react(plot, data, themed(figure), config);
}

// A plot is drawn when it comes near the screen: a page of many runs opens at once.
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    near.unobserve(entry.target);
    plots.get(entry.target).seen = true;
    draw(entry.target);
  }
}, { rootMargin: "400px" });

function redraw() { for (const [plot, { seen }] of plots) if (seen) draw(plot); }

function card(figure, hidden) {
  const frame = make("figure", "chart");
  const caption = make("figcaption", "", figure.title);
  caption.append(make("span", "", figure.about));
  frame.append(caption);
  if (figure.data.length === 0) {
    frame.append(make("div", "empty", "nothing measured yet by these runs"));
    return frame;
  }
  const square = isMap(figure) || figure.layout.yaxis.scaleanchor;
  const plot = make("div", square ? "plot tall" : "plot");
  frame.append(plot);
  plots.set(plot, { figure, hidden, seen: false });
  near.observe(plot);
  return frame;
}

function facts(run) {
  const box = make("div", "card");
  const list = make("dl", "facts");
  for (const [name, value] of Object.entries(run.facts)) list.append(make("dt", "", name), make("dd", "", value));
  const line = make("div", "command");
  const copy = make("button", "", "copy");
  copy.type = "button";
  copy.addEventListener("click", () => {
    navigator.clipboard.writeText(run.command).then(() => { copy.textContent = "copied"; }, () => {});
  });
  line.append(make("pre", "", run.command), copy);
  const more = make("details");
  more.append(make("summary", "", "every setting"), make("pre", "", JSON.stringify(run.config, null, 2)));
  box.append(list, line, more);
  return box;
}

function showRun(place, run) {
  for (const plot of place.querySelectorAll(".plot")) {
    near.unobserve(plot);
    plots.delete(plot);
    Plotly.purge(plot);
  }
  const grid = make("div", "grid");
  for (const figure of run.charts) grid.append(card(figure, new Set()));
  place.replaceChildren(facts(run), grid, ...run.notes.map((note) => make("p", "note", note)));
}

for (const section of document.querySelectorAll("section.data")) {
  const part = drawn[Number(section.dataset.section)];
  const hidden = new Set();
  // the curves everyone looks for first, then the tables, then the other charts
  const [first, rest] = section.querySelectorAll(".compare");
  part.charts.forEach((figure, i) => (i < 2 ? first : rest).append(card(figure, hidden)));
  for (const chip of section.querySelectorAll(".chip")) {
    const run = Number(chip.dataset.run);
    chip.addEventListener("click", () => {
      if (!hidden.delete(run)) hidden.add(run);
      chip.setAttribute("aria-pressed", String(!hidden.has(run)));
      section.querySelector(`tr[data-run="${run}"]`).classList.toggle("hidden", hidden.has(run));
      redraw();
    });
  }
  const one = section.querySelector(".one"), select = section.querySelector("select");
  showRun(one, part.runs[0]);
  if (select) select.addEventListener("change", () => showRun(one, part.runs[Number(select.value)]));
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const button = document.getElementById("theme");
function setTheme(name) {
  root.dataset.theme = name;
  button.textContent = name === "dark" ? "light theme" : "dark theme";
  redraw();
}
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
button.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
setTheme(dark.matches ? "dark" : "light");
