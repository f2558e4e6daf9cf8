// Elements of the page: made from values, never from markup, so that names and rows of users are shown as text.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "circle", "rect", "path", "text", "title", "line", "polyline", "desc", "svg:a"]);

/** Return an element. A listener stands as `onclick`; null, undefined and false leave an attribute or a child out. */
export function element(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag.replace("svg:", "")) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made[name] = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
}

/** Change `old` into `wanted` in place, so that focus, scroll position and selection stay. Return the node that stands there now. */
export function patch(old, wanted) {
  if (old.nodeType !== wanted.nodeType || old.nodeName !== wanted.nodeName || old.id !== wanted.id) {
    old.replaceWith(wanted);
    return wanted;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return old;
  }
  if (old.hasAttribute("data-keep")) return old;
  for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const listener of ["onclick", "onchange", "oninput", "onsubmit"]) if (old[listener] !== wanted[listener]) old[listener] = wanted[listener];
  patchChildren(old, [...wanted.childNodes]);
  return old;
}

/** Change the children of an element into these. */
export function patchChildren(parent, wanted) {
  const before = [...parent.childNodes];
  wanted.forEach((node, index) => (index < before.length ? patch(before[index], node) : parent.append(node)));
  before.slice(wanted.length).forEach((node) => node.remove());
}

export function table(caption, heads, rows) {
  const isNumber = heads.map((head) => head.startsWith("#"));
  return element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption },
    element("table", { "aria-label": caption },
      element("thead", {}, element("tr", {}, heads.map((head, place) =>
        element("th", { scope: "col", class: isNumber[place] ? "number" : null }, head.replace(/^#/, ""))))),
      element("tbody", {}, rows.map((cells) => element("tr", {}, cells.map((cell, place) =>
        element(place === 0 ? "th" : "td", { scope: place === 0 ? "row" : null, class: isNumber[place] ? "number" : null }, cell)))))));
}

export const link = (target, text) => element("a", { href: "#/" + target.map(encodeURIComponent).join("/") }, text);

export function count(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3)).toString();
}

export const rate = (value) => (value === null || value === undefined ? "–" : `${count(value)}/s`);
export const milliseconds = (value) => (value === null || value === undefined ? "–" : `${count(value)} ms`);

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${count(value)} ${units[unit]}`;
}

export const clock = (ms) => (ms ? new Date(ms).toLocaleTimeString("en-GB") : "–");
