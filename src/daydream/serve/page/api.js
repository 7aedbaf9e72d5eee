// What the page asks of the server.

export const state = { model: null, about: null, server: null };

const path = (rest = "") => `/api/models/${encodeURIComponent(state.model)}${rest}`;

async function asked(url, options = {}) {
  let answer;
  try {
    answer = await fetch(url, options);
  } catch {
    throw new Error("The server does not answer: is it still running?");
  }
  if (!answer.ok) {
    const found = await answer.json().catch(() => ({}));
    throw new Error(found.error || `The server answered with ${answer.status}`);
  }
  return answer.json();
}

const words = (method, value) => ({
  method, headers: { "content-type": "application/json" }, body: JSON.stringify(value),
});

export const server = () => asked("/api");
export const about = () => asked(path());
export const newModel = (value) => asked("/api/models", words("POST", value));
export const get = (rest) => asked(path(rest));
export const post = (rest, value = {}) => asked(path(rest), words("POST", value));
export const remove = (rest) => asked(path(rest), { method: "DELETE" });
export const thumbnail = (id, side = 96) => path(`/pictures/${id}?side=${side}`);
export const address = path;

export function send(rest, files) {
  const form = new FormData();
  for (const { file, name } of files) form.append("files", file, name);
  return asked(path(rest), { method: "POST", body: form });
}

const MOST_FILES = 40;
const MOST_BYTES = 16e6;

// Sends many pictures, some at a time; `told` hears how many have been sent.
export async function upload(files, query, told) {
  const total = { kept: {}, doubled: 0, passed_over: 0, why: [] };
  for (let start = 0; start < files.length;) {
    let end = start;
    for (let bytes = 0; end < files.length && end - start < MOST_FILES; end += 1) {
      bytes += files[end].file.size;
      if (bytes > MOST_BYTES && end > start) break;
    }
    const came = await send(`/pictures?${new URLSearchParams(query)}`, files.slice(start, end));
    for (const [name, count] of Object.entries(came.kept)) total.kept[name] = (total.kept[name] || 0) + count;
    total.doubled += came.doubled;
    total.passed_over += came.passed_over;
    total.why.push(...came.why);
    start = end;
    told(start, files.length);
  }
  return total;
}

// Follows the lesson under way; a connection that is lost is made again by the browser.
export function follow(heard, lost) {
  const source = new EventSource(path("/lessons/events"));
  source.onmessage = (event) => {
    const progress = JSON.parse(event.data);
    if (progress.state !== "running") source.close();
    heard(progress);
  };
  source.onerror = () => lost(source.readyState === EventSource.CLOSED);
  return source;
}
