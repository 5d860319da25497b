// @ts-check
/* What the examiner's and the listener's pages share: texts, and elements without HTML strings. */

/**
 * An element of this page. Its absence is a mistake of the page, so it is an error here.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @param {{ new (): T }} [type] the kind of element that the caller relies on
 * @returns {T}
 */
export function byId(id, type) {
  const element = document.getElementById(id);
  if (!(element instanceof (type ?? HTMLElement))) throw new Error(`no such element: #${id}`);
  return /** @type {T} */ (element);
}

/** @type {Record<string, string>} */
const TEXTS = JSON.parse(byId("texts").textContent ?? "");

/**
 * The text of a key, with the names in braces filled in.
 * @param {TextKey} key
 * @param {TextValues} [values]
 */
export function t(key, values) {
  const text = find(key, values);
  if (text === null) throw new Error(`no such text: ${key}`);
  return text;
}

/**
 * The word for a value of the API, such as a state; a value without a word stands for itself.
 * @param {string} group
 * @param {unknown} value
 */
export function word(group, value) {
  return find(`${group}.${value}`) ?? String(value);
}

/**
 * The text of a key that is put together as the page runs, or null where there is none.
 * @param {string} key
 * @param {TextValues} [values]
 */
export function find(key, values = {}) {
  const text = TEXTS[key];
  if (text === undefined) return null;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

/** @typedef {Record<string, unknown>} Attributes a function listens; null and false: left out */
/** @typedef {Node | string | number | null | undefined} Leaf */
/** @typedef {Leaf | readonly (Leaf | readonly Leaf[])[]} Child */

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {Child[]} children
 */
export function el(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/**
 * The same for pictures.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {Child[]} children
 */
export function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/**
 * @template {Element} T
 * @param {T} element
 * @param {Attributes} attributes
 * @param {Child[]} children
 * @returns {T}
 */
function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name, /** @type {EventListener} */ (value));
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...nodes(children));
  return element;
}

/**
 * Replace what an element holds.
 * @param {Element} element
 * @param {Child[]} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
}

/**
 * @param {Child[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  const leaves = /** @type {Leaf[]} */ (children.flat(3));
  const known = leaves.filter((child) => child !== null && child !== undefined);
  return known.map((child) => (child instanceof Node ? child : String(child)));
}
