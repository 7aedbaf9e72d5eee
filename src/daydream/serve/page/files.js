// Pictures from a drop, a file chooser or a camera.

import { el, say, show } from "./dom.js";

const PICTURE = /\.(png|jpe?g|webp|bmp|gif|zip)$/i;

const kept = (files) => files.filter(({ name }) => PICTURE.test(name) && !name.split("/").some((part) => part.startsWith(".")));

async function walked(entry, name) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ file, name }];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    for (const inner of some) found.push(...await walked(inner, `${name}/${inner.name}`));
  }
}

export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry && item.webkitGetAsEntry()).filter(Boolean);
  if (!entries.length) return kept([...transfer.files].map((file) => ({ file, name: file.name })));
  const found = [];
  for (const entry of entries) found.push(...await walked(entry, entry.name));
  return kept(found);
}

const chosen = (input) => kept([...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name })));

// A place to drop pictures on, with a button for those who drop nothing.
export function dropPlace(text, take, { folder = false } = {}) {
  const input = el("input", { type: "file", multiple: true, hidden: true, webkitdirectory: folder });
  if (!folder) input.accept = "image/*,.zip";
  input.addEventListener("change", () => { take(chosen(input)); input.value = ""; });
  const place = el("div", { className: "drop" },
    el("span", {}, text), el("button", { type: "button", onclick: () => input.click() }, folder ? "Choose a folder" : "Choose pictures"), input);
  takesDrops(place, take);
  return place;
}

export function takesDrops(place, take) {
  place.addEventListener("dragover", (event) => { event.preventDefault(); place.classList.add("over"); });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    place.classList.remove("over");
    const files = await dropped(event.dataTransfer);
    if (files.length) take(files);
    else say("There is no picture in what was dropped (png, jpg, webp, bmp, gif or zip)", true);
  });
}

const BURST = 20;
const EVERY = 120;

// Opens the camera; `take` gets one picture or a burst of them.
export async function camera(place, burst, take) {
  if (!navigator.mediaDevices) {
    say("The browser gives a camera only to 127.0.0.1 or https", true);
    return;
  }
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: 640, height: 480 } });
  } catch {
    say("There is no camera, or the browser was not allowed to use it", true);
    return;
  }
  const video = el("video", { autoplay: true, muted: true, playsInline: true, srcObject: stream });
  const stop = () => { stream.getTracks().forEach((track) => track.stop()); show(place); };
  const shot = () => new Promise((resolve) => {
    const canvas = el("canvas", { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob((blob) => resolve({ file: blob, name: `camera-${Date.now()}.jpg` }), "image/jpeg", 0.92);
  });
  const record = async () => {
    const found = [];
    for (let i = 0; i < (burst ? BURST : 1); i += 1) {
      found.push(await shot());
      await new Promise((resolve) => setTimeout(resolve, burst ? EVERY : 0));
    }
    take(found);
  };
  show(place, el("div", { className: "camera" }, video, el("div", { className: "row" },
    el("button", { type: "button", className: "main", onclick: record }, burst ? `Take ${BURST} pictures` : "Take a picture"),
    el("button", { type: "button", onclick: stop }, "Close the camera"))));
}
