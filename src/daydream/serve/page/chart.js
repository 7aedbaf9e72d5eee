// Accuracy over lessons as a drawing; the same numbers stand in the table beside it.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [720, 260, 44, 30, 12, 14];

function mark(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// `lines`: [{ name, values: [number | null] }], all as long as there are lessons.
export function chart(lines, title) {
  const count = Math.max(...lines.map((line) => line.values.length), 1);
  const x = (i) => LEFT + (count === 1 ? 0.5 : i / (count - 1)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / 100) * (HEIGHT - TOP - BOTTOM);
  const svg = mark("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title, class: "chart" });
  for (const value of [0, 25, 50, 75, 100]) {
    svg.append(mark("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
    svg.append(mark("text", { x: LEFT - 8, y: y(value) + 4, class: "end" }, `${value} %`));
  }
  const each = Math.ceil(count / 12);
  for (let i = 0; i < count; i += each) svg.append(mark("text", { x: x(i), y: HEIGHT - 8, class: "middle" }, `${i + 1}`));
  lines.forEach((line, number) => {
    const points = line.values.map((value, i) => [value, i]).filter(([value]) => value !== null && value !== undefined);
    const group = mark("g", { class: `line line-${number % 8} ${line.bold ? "bold" : ""}` });
    group.append(mark("title", {}, line.name));
    group.append(mark("polyline", { points: points.map(([value, i]) => `${x(i)},${y(value)}`).join(" ") }));
    for (const [value, i] of points) group.append(mark("circle", { cx: x(i), cy: y(value), r: line.bold ? 4 : 2.5 }));
    svg.append(group);
  });
  return svg;
}
