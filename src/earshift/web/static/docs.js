// @ts-check
/* The API's own description (OpenAPI) as a page that can be read, without help from elsewhere. */

import { getPlain } from "./api.js";
import { byId, el, fill, t } from "./dom.js";
import { complain } from "./page.js";
import { table } from "./table.js";

/**
 * The parts of OpenAPI 3.1 that this page shows.
 * @typedef {{
 *   $ref?: string, anyOf?: Schema[], oneOf?: Schema[], const?: unknown, enum?: unknown[],
 *   type?: string, format?: string, items?: Schema, additionalProperties?: Schema,
 *   properties?: Record<string, Schema>, required?: string[], description?: string,
 * }} Schema
 * @typedef {Record<string, { schema?: Schema }>} Content by media type
 * @typedef {{ name: string, in: string, required?: boolean, schema: Schema }} Parameter
 * @typedef {{
 *   summary?: string, description?: string, tags?: string[], parameters?: Parameter[],
 *   requestBody?: { content: Content },
 *   responses?: Record<string, { description?: string, content?: Content }>,
 * }} Operation
 * @typedef {{
 *   components?: { schemas?: Record<string, Schema> },
 *   paths: Record<string, Record<string, Operation>>,
 * }} Description
 */

const METHODS = ["get", "post", "put", "patch", "delete"];

/**
 * A schema in one line: its name, its type, or what it may be.
 * @param {Schema | undefined} schema
 * @returns {string}
 */
function brief(schema) {
  if (!schema || Object.keys(schema).length === 0) return t("docs.anything");
  if (schema.$ref) return schema.$ref.split("/").at(-1) ?? "";
  const any = schema.anyOf ?? schema.oneOf;
  if (any) return any.map(brief).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return `[${brief(schema.items)}]`;
  if (schema.additionalProperties) return `{${brief(schema.additionalProperties)}}`;
  return [schema.type, schema.format].filter(Boolean).join(" ") || t("docs.anything");
}

/** @param {boolean | undefined} whether */
const yesOrNo = (whether) => (whether ? t("word.yes") : t("word.no"));

/**
 * The page's parts, which lead to the schemas that are described on it.
 * @param {Record<string, Schema>} schemas
 */
function partsOf(schemas) {
  /** @param {Schema | undefined} schema */
  function linked(schema) {
    const text = brief(schema);
    if (!(text in schemas)) return el("code", {}, text);
    const open = () => byId(`schema-${text}`).setAttribute("open", "");
    return el("a", { href: `#schema-${text}`, click: open }, el("code", {}, text));
  }

  /**
   * @param {string} path
   * @param {string} method
   * @param {Operation} operation
   */
  function routePart(path, method, operation) {
    const inputs = (operation.parameters ?? []).map((each) => [
      each.name, each.in, linked(each.schema), yesOrNo(each.required),
    ]);
    const bodies = Object.entries(operation.requestBody?.content ?? {}).map(([type, content]) =>
      el("p", {}, t("docs.body", { type }), " ", linked(content.schema)),
    );
    const outputs = Object.entries(operation.responses ?? {}).map(([status, answer]) => {
      const schema = Object.values(answer.content ?? {})[0]?.schema;
      const description = ` ${answer.description ?? ""} `;
      return el("li", {}, el("strong", {}, status), description, schema ? linked(schema) : null);
    });
    const columns = [t("docs.parameter"), t("docs.where"), t("docs.type"), t("docs.required")];
    const name = el("code", { class: `method ${method}` }, method.toUpperCase());
    return el("details", { class: "route" },
      el("summary", {}, name, " ", el("code", {}, path), ` ${operation.summary ?? ""}`),
      operation.description ? el("p", { class: "note" }, operation.description) : null,
      inputs.length ? table(t("docs.parameters"), columns, inputs) : null,
      bodies,
      el("p", {}, t("docs.answers")),
      el("ul", {}, outputs),
    );
  }

  /**
   * @param {string} name
   * @param {Schema} schema
   */
  function schemaPart(name, schema) {
    const required = new Set(schema.required ?? []);
    const rows = Object.entries(schema.properties ?? {}).map(([field, each]) => [
      field, linked(each), yesOrNo(required.has(field)), each.description ?? "",
    ]);
    const columns = [t("docs.field"), t("docs.type"), t("docs.required"), t("docs.means")];
    return el("details", { id: `schema-${name}`, class: "route" },
      el("summary", {}, el("code", {}, name)),
      schema.description ? el("p", { class: "note" }, schema.description) : null,
      rows.length
        ? table(name, columns, rows, { class: "bare" })
        : el("p", {}, el("code", {}, brief(schema))));
  }

  return { routePart, schemaPart };
}

/** @param {Description} description */
function show(description) {
  const schemas = description.components?.schemas ?? {};
  const { routePart, schemaPart } = partsOf(schemas);
  /** @type {Map<string, Element[]>} */
  const groups = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const method of METHODS.filter((each) => each in methods)) {
      const group = methods[method].tags?.[0] ?? path.split("/")[2] ?? path;
      groups.set(group, [...(groups.get(group) ?? []), routePart(path, method, methods[method])]);
    }
  }
  const routes = [...groups].map(([group, parts]) => el("section", {}, el("h3", {}, group), parts));
  const shapes = Object.entries(schemas).map(([name, schema]) => schemaPart(name, schema));
  fill(
    byId("routes"),
    el("section", { class: "card" }, el("h2", {}, t("docs.routes")), routes),
    el("section", { class: "card" }, el("h2", {}, t("docs.schemas")), shapes),
  );
}

getPlain(byId("raw", HTMLAnchorElement).href).then(show).catch(complain);
