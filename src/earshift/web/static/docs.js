/* The API's own description (OpenAPI) as a page that can be read, without help from elsewhere. */

import { get } from "./api.js";
import { byId, complain, el, fill, t, table } from "./page.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
let schemas = {};

const nameOfSchema = (schema) => schema.$ref.split("/").at(-1);

/** A schema in one line: its name, its type, or what it may be. */
function brief(schema) {
  if (!schema || Object.keys(schema).length === 0) return t("docs.anything");
  if (schema.$ref) return nameOfSchema(schema);
  const any = schema.anyOf ?? schema.oneOf;
  if (any) return any.map(brief).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return `[${brief(schema.items)}]`;
  if (schema.type === "object" && schema.additionalProperties) return `{${brief(schema.additionalProperties)}}`;
  return [schema.type, schema.format].filter(Boolean).join(" ") || t("docs.anything");
}

const linked = (schema) => {
  const text = brief(schema);
  if (!(text in schemas)) return el("code", {}, text);
  const open = () => byId(`schema-${text}`).setAttribute("open", "");
  return el("a", { href: `#schema-${text}`, click: open }, el("code", {}, text));
};

function route(path, method, operation) {
  const inputs = (operation.parameters ?? []).map((each) => [each.name, each.in, linked(each.schema), each.required ? t("word.yes") : t("word.no")]);
  const body = operation.requestBody?.content ?? {};
  const outputs = Object.entries(operation.responses ?? {}).map(([status, answer]) => {
    const content = Object.values(answer.content ?? {})[0];
    return el("li", {}, el("strong", {}, status), ` ${answer.description ?? ""} `, content?.schema ? linked(content.schema) : null);
  });
  const columns = ["docs.parameter", "docs.where", "docs.type", "docs.required"].map((key) => t(key));
  return el("details", { class: "route" },
    el("summary", {}, el("code", { class: `method ${method}` }, method.toUpperCase()), " ", el("code", {}, path), ` ${operation.summary ?? ""}`),
    operation.description ? el("p", { class: "note" }, operation.description) : null,
    inputs.length ? table(t("docs.parameters"), columns, inputs) : null,
    ...Object.entries(body).map(([type, content]) => el("p", {}, t("docs.body", { type }), " ", linked(content.schema))),
    el("p", {}, t("docs.answers")),
    el("ul", {}, outputs),
  );
}

function schemaPart(name, schema) {
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([field, each]) => [
    field, linked(each), required.has(field) ? t("word.yes") : t("word.no"), each.description ?? "",
  ]);
  const columns = ["docs.field", "docs.type", "docs.required", "docs.means"].map((key) => t(key));
  return el("details", { id: `schema-${name}`, class: "route" }, el("summary", {}, el("code", {}, name)),
    schema.description ? el("p", { class: "note" }, schema.description) : null,
    rows.length ? table(name, columns, rows, { class: "bare" }) : el("p", {}, el("code", {}, brief(schema))));
}

function show(document) {
  schemas = document.components?.schemas ?? {};
  const groups = new Map();
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const method of METHODS.filter((each) => each in methods)) {
      const group = methods[method].tags?.[0] ?? path.split("/")[2] ?? path;
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(route(path, method, methods[method]));
    }
  }
  fill(
    byId("routes"),
    el("section", { class: "card" }, el("h2", {}, t("docs.routes")), [...groups].map(([group, routes]) => el("section", {}, el("h3", {}, group), routes))),
    el("section", { class: "card" }, el("h2", {}, t("docs.schemas")),
      Object.entries(schemas).map(([name, schema]) => schemaPart(name, schema))),
  );
}

get(byId("raw").getAttribute("href")).then(show).catch(complain);
