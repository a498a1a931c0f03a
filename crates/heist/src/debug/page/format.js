// Making elements, and numbers for people.
const byId = (id) => document.getElementById(id);
const color = (name) => `var(--${name})`;

// An element; texts are never parsed as HTML.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function count(n) {
  if (n < 10000) return String(Math.round(n));
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (n >= size) return (n / size).toFixed(n >= 100 * size ? 0 : 1) + unit;
  }
  return String(n);
}

const rate = (n) => (n > 0 && n < 10 ? n.toFixed(1) : count(n));

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "longer";
  if (seconds <= 0) return "0";
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]) {
    if (seconds >= size * 0.9995) {
      const n = seconds / size;
      return `${n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)} ${unit}`;
    }
  }
  return "0";
}

function age(seconds) {
  const s = Math.floor(seconds);
  const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const shown = parts.filter(([size]) => s >= size).slice(0, 2);
  const text = shown.map(([size, unit]) => `${Math.floor((s % (size * (size === 86400 ? 1e6 : size === 3600 ? 24 : 60))) / size)}${unit}`);
  return text.join(" ") || "0s";
}

// A spawn site without the folders that say little: the end of the path is what differs.
function shortSite(site) {
  if (!site) return "";
  const parts = site.split("/");
  return parts.length > 4 ? `…/${parts.slice(-3).join("/")}` : site;
}
