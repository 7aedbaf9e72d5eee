// The API's own page, drawn from its OpenAPI: nothing is loaded from elsewhere.

import { byId, el, show } from "./dom.js";

document.documentElement.dataset.theme = localStorage.getItem("theme")
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

const spec = await (await fetch("openapi.json")).json();

function shape(schema, depth = 0) {
  if (!schema || depth > 6) return "…";
  if (schema.$ref) return shape(spec.components.schemas[schema.$ref.split("/").pop()], depth + 1);
  if (schema.anyOf) return schema.anyOf.map((one) => shape(one, depth + 1)).join(" | ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${shape(schema.items, depth + 1)}, …]`;
  if (schema.properties) {
    const pad = "  ".repeat(depth + 1);
    const rows = Object.entries(schema.properties).map(([name, inner]) => `${pad}${name}: ${shape(inner, depth + 1)}`);
    return `{\n${rows.join("\n")}\n${"  ".repeat(depth)}}`;
  }
  if (schema.additionalProperties) return `{name: ${shape(schema.additionalProperties, depth + 1)}, …}`;
  return schema.contentMediaType || schema.format === "binary" ? "file" : schema.type || "any";
}

function route(path, method, about) {
  const given = (about.parameters || []).map((one) => `${one.name}${one.required ? "" : "?"}: ${shape(one.schema)}`);
  const body = about.requestBody && Object.entries(about.requestBody.content)[0];
  const done = Object.entries(about.responses).find(([status]) => status.startsWith("2"));
  const json = done && done[1].content && done[1].content["application/json"];
  const blocks = [["parameters", given.join("\n")], [body && body[0], body && shape(body[1].schema)], [done && `answer ${done[0]}`, json && shape(json.schema)]];
  return el("article", { className: "card" }, el("h3", {}, el("span", { className: "badge" }, method.toUpperCase()), ` ${path}`),
    el("p", {}, about.description || ""),
    el("details", {}, el("summary", {}, "Words"), ...blocks.filter(([, text]) => text).map(([head, text]) =>
      el("div", {}, el("p", { className: "quiet" }, head), el("pre", {}, text)))));
}

const tags = new Map();
for (const [path, methods] of Object.entries(spec.paths)) {
  for (const [method, about] of Object.entries(methods)) {
    const tag = (about.tags || [""])[0];
    tags.set(tag, [...(tags.get(tag) || []), route(path, method, about)]);
  }
}
show(byId("main"), el("p", {}, `${spec.info.description} A mistake is answered by {"error": one line}.`),
  ...[...tags].flatMap(([tag, routes]) => [el("h2", {}, tag), ...routes]));
