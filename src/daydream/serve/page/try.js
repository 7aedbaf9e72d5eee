// Try: what the model makes of a picture, and why.

import * as api from "./api.js";
import { attempt, button, el, show } from "./dom.js";
import { camera, dropPlace } from "./files.js";

const NEAREST = 6;
const MOST = 16;

export function showTry(node) {
  const answers = el("div", { className: "answers", "aria-live": "polite" });
  const lens = el("div", {});
  const take = (files) => attempt(() => judge(files.slice(0, MOST), answers));
  show(node, el("div", { className: "drops" }, dropPlace("Drop pictures to try", take)),
    button("Use the camera", () => camera(lens, false, take)), lens, answers);
}

async function judge(files, answers) {
  if (!files.length) throw new Error("There is no picture among these (png, jpg, webp, bmp or gif)");
  const found = await api.send(`/predict?nearest=${NEAREST}&top=5`, files);
  answers.prepend(...found.map((told, i) => answer(told, files[i].file)));
}

function answer(told, file) {
  const image = el("img", { alt: told.file, width: 160, height: 160 });
  image.src = URL.createObjectURL(file);
  image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  const none = told.none_of_these ? el("p", { className: "badge warn" }, "Likely none of these") : null;
  const bars = told.classes.map(({ name, probability }) => el("div", { className: "bar" },
    el("span", {}, name), el("meter", { min: 0, max: 1, value: probability, "aria-label": `${name}, probability` }),
    el("span", { className: "number" }, `${(100 * probability).toFixed(1)} %`)));
  const near = told.nearest.map((one) => el("figure", {},
    one.kept ? el("img", { src: api.thumbnail(one.id), alt: "", width: 64, height: 64 }) : el("div", { className: "absent" }, "not here"),
    el("figcaption", {}, `${one.name} ${(100 * one.cosine).toFixed(0)}`)));
  return el("article", { className: "card answer", "aria-label": `answer for ${told.file}` }, image,
    el("div", {}, none, ...bars, el("p", { className: "quiet" }, reason(told.nearest)), near.length ? el("div", { className: "row near" }, ...near) : null));
}

// What is said above the nearest pictures, or in their place.
function reason(nearest) {
  if (api.state.about.kind === "adapting") return "No nearest pictures: this model's network changes with each lesson, so it keeps none to compare with.";
  if (!nearest.length) return "No nearest pictures: this model keeps no features to compare with.";
  const here = nearest.every((one) => one.kept) ? "" : "; some are not here, as the command line taught them or they were not kept";
  return `Nearest pictures it has learnt, with likeness${here}`;
}
