// Asks once a second while the page can be seen, and shows the answer.
const view = { samples: [], history: [], strips: {}, paused: false, window: "recent", timer: 0, asked: 0, failed: 0 };
const RECENT = 30;
// Rates are taken over so many samples: one alone is restless.
const SMOOTH = 3;

// What was counted in the last seconds, or since the start.
function latencyCounts(window) {
  const now = view.samples.at(-1).latency.counts;
  const old = window === "all" ? [] : view.samples[0].latency.counts;
  return now.map((n, i) => Math.max(0, n - (old[i] || 0)));
}

function show() {
  const now = view.samples.at(-1);
  const before = view.samples[Math.max(0, view.samples.length - 1 - SMOOTH)];
  const seconds = (now.uptime_ns - before.uptime_ns) / 1e9;
  const rates = (name) => (seconds > 0 ? ((now.counters[name] || 0) - (before.counters[name] || 0)) / seconds : 0);
  document.title = `${now.name}: heist scheduler`;
  byId("name").textContent = now.name;
  byId("identity").textContent = `process ${now.pid} · up ${age(now.uptime_ns / 1e9)} · heist ${now.version}`;
  showTiles(now, rates, latencyCounts("recent"));
  showLanes(now, before, view.strips);
  drawStates(byId("states"), view.history);
  drawLatency(byId("latency"), latencyCounts(view.window), now.latency.upper_s);
  showReasons(now);
  showThefts(now, view.samples[0]);
  showSites(now, (site) => {
    byId("f-site").value = site;
    loadGoroutines();
    byId("h-list").scrollIntoView({ block: "center" });
  });
  offerStates(now);
}

function take(now) {
  // Another program took the place of the one that was looked at.
  const last = view.samples.at(-1);
  if (last && (last.pid !== now.pid || last.uptime_ns > now.uptime_ns)) {
    Object.assign(view, { samples: [], history: [], strips: {} });
  }
  view.samples.push(now);
  if (view.samples.length > RECENT + 1) view.samples.shift();
  view.history.push(now.states);
  if (view.history.length > HISTORY) view.history.shift();
  for (const p of now.ps) {
    const strip = (view.strips[p.id] = view.strips[p.id] || []);
    strip.push(p.state);
    if (strip.length > 60) strip.shift();
  }
}

function mark(state, text) {
  byId("pulse").className = `pulse ${state}`;
  byId("lost").hidden = state !== "lost";
  if (state === "lost") byId("lost").textContent = text;
}

async function tick() {
  view.timer = 0;
  if (view.paused || document.hidden) return;
  const started = performance.now();
  try {
    const answer = await fetch("/debug/sched.json", { signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(await answer.text());
    take(await answer.json());
    mark("live");
    show();
    if (view.asked % 3 === 0) loadGoroutines();
    view.asked += 1;
    byId("sampled").textContent = `answered in ${duration((performance.now() - started) / 1e3)}`;
  } catch (error) {
    mark("lost", `No answer: ${String(error.message || error).trim()}. Trying again.`);
  }
  schedule();
}

function schedule() {
  if (view.timer === 0 && !view.paused && !document.hidden) view.timer = setTimeout(tick, 1000);
}

byId("pause").addEventListener("click", () => {
  view.paused = !view.paused;
  byId("pause").textContent = view.paused ? "Continue" : "Pause";
  byId("pause").setAttribute("aria-pressed", view.paused);
  mark(view.paused ? "" : "live");
  if (!view.paused) tick();
});
document.addEventListener("visibilitychange", schedule);
window.addEventListener("resize", () => view.samples.length && show());
byId("window").addEventListener("click", (event) => {
  const chosen = event.target.dataset.window;
  if (!chosen) return;
  view.window = chosen;
  for (const button of byId("window").children) button.setAttribute("aria-pressed", button.dataset.window === chosen);
  if (view.samples.length) show();
});
byId("filters").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["f-state", "f-site"]) byId(id).addEventListener("input", loadGoroutines);
legend(byId("p-legend"), ["running", "blocked", "spinning", "idle"]);
legend(byId("g-legend"), STATES.map(([name]) => name));
tick();
