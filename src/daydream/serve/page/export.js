// Export: the model for other programs, and its own file.

import * as api from "./api.js";
import { button, el, say, show } from "./dom.js";

const KINDS = [
  ["onnx", "ONNX", "network and head for onnxruntime, in any language; how pictures are prepared stands in its metadata"],
  ["safetensors", "safetensors", "the same as named weights, for PyTorch and others"],
  ["model", "The model file", "all it knows: it can be taught further, here or by the command line"],
];

export function showExport(node) {
  if (!api.state.about.exists) {
    show(node, el("p", { className: "quiet" }, "The model knows no class yet: teach it first."));
    return;
  }
  show(node, ...KINDS.map(([kind, name, line]) => el("div", { className: "card row" },
    el("div", {}, el("h2", {}, name), el("p", { className: "quiet" }, line)), el("span", { className: "space" }),
    button("Download", () => download(kind), { "aria-label": `Download ${name}` }))));
}

async function download(kind) {
  const answer = await fetch(api.address(`/export?as=${kind}`));
  if (!answer.ok) throw new Error((await answer.json()).error);
  const name = (answer.headers.get("content-disposition") || "").match(/filename="([^"]+)"/)?.[1] || `model.${kind}`;
  const url = URL.createObjectURL(await answer.blob());
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  say(`${name} is written`);
}
