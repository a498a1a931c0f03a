// Charts of the last minutes.
const STATES = [["running", "running"], ["runnable", "runnable"], ["blocked", "blocked"], ["waiting", "waiting"]];
const HISTORY = 300;

function axisTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= value) || 10 * power;
}

// Stacked areas of the goroutines by state.
function drawStates(target, history) {
  const [width, height, left, bottom] = [target.clientWidth || 600, 190, 44, 20];
  target.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const top = axisTop(Math.max(1, ...history.map((at) => STATES.reduce((sum, [key]) => sum + at[key], 0))));
  // The axis grows from one minute to five.
  const span = Math.min(HISTORY, Math.max(60, history.length));
  const x = (i) => left + ((width - left - 2) * (i + span - history.length)) / (span - 1);
  const y = (value) => 6 + (height - bottom - 6) * (1 - value / top);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const at = y(top * share);
    parts.push(svg("line", { x1: left, x2: width, y1: at, y2: at, stroke: color("line") }));
    parts.push(svg("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, share === 0 ? "0" : count(top * share)));
  }
  const base = history.map(() => 0);
  for (const [key, name] of STATES) {
    const lower = history.map((_, i) => `${x(i).toFixed(1)},${y(base[i]).toFixed(1)}`).reverse();
    const upper = history.map((at, i) => {
      base[i] += at[key];
      return `${x(i).toFixed(1)},${y(base[i]).toFixed(1)}`;
    });
    if (history.length > 1) {
      parts.push(svg("polygon", { points: upper.concat(lower).join(" "), fill: color(name), "fill-opacity": 0.75 }));
    }
  }
  const ago = (seconds) => (seconds < 120 ? `${Math.round(seconds)} s ago` : `${(seconds / 60).toFixed(1)} min ago`);
  parts.push(svg("text", { x: left, y: height - 4 }, ago(span)));
  parts.push(svg("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, ago(span / 2)));
  parts.push(svg("text", { x: width, y: height - 4, "text-anchor": "end" }, "now"));
  target.replaceChildren(...parts);
}

// The value that the given share of a histogram does not exceed.
function quantile(counts, upper, share) {
  const total = counts.reduce((sum, n) => sum + n, 0);
  if (total === 0) return null;
  let seen = 0;
  for (let i = 0; i < counts.length; i += 1) {
    seen += counts[i];
    if (seen >= total * share) return i < upper.length ? upper[i] : Infinity;
  }
  return Infinity;
}

function drawLatency(target, counts, upper) {
  const [width, height, left, bottom] = [target.clientWidth || 600, 190, 6, 20];
  target.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const first = counts.findIndex((n) => n > 0);
  if (first < 0) {
    target.replaceChildren(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing was measured"));
    return;
  }
  const last = counts.findLastIndex((n) => n > 0);
  const [from, to] = [Math.max(0, first - 1), Math.max(last + 1, first + 10)];
  const step = (width - left) / (to - from + 1);
  const most = Math.max(...counts);
  const parts = [];
  for (let i = from; i <= to; i += 1) {
    const n = counts[i] || 0;
    const x = left + (i - from) * step;
    const h = n === 0 ? 0 : Math.max(2, (height - bottom - 34) * (n / most));
    const slow = upper[i] > 0.01 ? "bad" : upper[i] > 0.001 ? "runnable" : "running";
    const bar = svg("rect", { x: x + 1.5, y: height - bottom - h, width: Math.max(1, step - 3), height: h, rx: 2, fill: color(slow) });
    bar.append(svg("title", {}, `${count(n)} up to ${duration(upper[i] ?? Infinity)}`));
    parts.push(bar);
    const every = Math.ceil(58 / step);
    if ((i - from) % every === 0 && i < upper.length && x + step + 24 < width) {
      parts.push(svg("text", { x: x + step, y: height - 4, "text-anchor": "middle" }, duration(upper[i])));
    }
  }
  const line = height - bottom + 0.5;
  parts.push(svg("line", { x1: left, x2: width, y1: line, y2: line, stroke: color("line") }));
  const marks = [[0.5, "p50"], [0.99, "p99"], [0.999, "p99.9"]].map(([share, name]) => `${name} ≤ ${duration(quantile(counts, upper, share))}`);
  parts.push(svg("text", { x: left, y: 14 }, marks.join("  ·  ")));
  target.replaceChildren(...parts);
}

// The states of one processor in the last minute, one cell a second.
function drawStrip(states) {
  const strip = svg("svg", { class: "strip", viewBox: "0 0 180 22", preserveAspectRatio: "none", "aria-hidden": "true" });
  strip.append(svg("rect", { y: 10, width: 180, height: 2, fill: color("track") }));
  states.forEach((state, i) => {
    const x = 180 - 3 * (states.length - i);
    strip.append(svg("rect", { x, y: 2, width: 2.4, height: 18, rx: 0.6, fill: color(stateColor(state)) }));
  });
  return strip;
}
