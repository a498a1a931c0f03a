// The panels: each takes the newest state and fills its element.
function stateColor(state) {
  return { running: "running", runnable: "runnable", blocked: "blocked", spinning: "spinning", scheduling: "spinning", stopped: "bad", idle: "idle" }[state] || "waiting";
}

function legend(target, names) {
  target.replaceChildren(...names.map((name) => el("span", { style: `--c:${color(stateColor(name))}` }, name)));
}

function showTiles(now, rates, recent) {
  const p99 = quantile(recent, now.latency.upper_s, 0.99);
  const tile = (label, value, unit, note) => el("div", { class: "tile" },
    el("div", { class: "label" }, label),
    el("div", { class: "value" }, value, unit ? el("small", {}, ` ${unit}`) : null),
    el("div", { class: "note", title: note }, note));
  const { states } = now;
  const busy = now.procs - now.procs_idle;
  byId("tiles").replaceChildren(
    tile("Goroutines", count(now.goroutines), "", `${count(states.waiting)} waiting`),
    tile("Busy processors", `${busy}`, `of ${now.procs}`, `${now.spinning} searching`),
    tile("Runnable", count(states.runnable), "", `${count(now.global_queue)} global`),
    tile("Spawned", rate(rates("/sched/goroutines-created:goroutines")), "/s", `${rate(rates("/heist/goroutines/finished:goroutines"))} ended /s`),
    tile("Switches", rate(rates("/heist/sched/executed:events")), "/s", `${rate(rates("/heist/preempt/forced:events"))} forced /s`),
    tile("Stolen", rate(rates("/heist/steal/goroutines:goroutines")), "/s", `${rate(rates("/heist/steal/attempts:events"))} looks /s`),
    tile("Latency p99", p99 === null ? "–" : duration(p99), "", "last 30 s"),
    tile("Threads", count(now.threads), "", `${count(states.blocked)} blocked`));
}

function showLanes(now, before, strips) {
  const seconds = (now.uptime_ns - before.uptime_ns) / 1e9;
  const most = Math.max(16, ...now.ps.map((p) => p.queue + p.yielded));
  const lanes = now.ps.map((p, i) => {
    const queued = p.queue + p.yielded + (p.next ? 1 : 0);
    const g = p.g;
    const seen = (p.seen_ns || 0) / 1e9;
    const long = p.state === "running" && seen >= 1;
    const held = seen >= 0.5 ? el("span", { class: long ? "long" : "soft" }, ` for ${duration(seen)} or longer`) : null;
    const what = g
      ? el("div", { class: "what" },
        el("div", { class: "g" }, g.name ? `${g.name} ` : "", el("span", { class: "soft" }, `goroutine ${g.id}`), held),
        el("div", { class: "site", title: g.site }, shortSite(g.site)))
      : el("div", { class: "what none soft" }, "–");
    const old = before.ps[i];
    const per = old && seconds > 0 ? (p.executed - old.executed) / seconds : 0;
    const title = `${p.queue} in the queue, ${p.yielded} that yielded, ${p.next ? 1 : 0} next, ${p.timers} timers`;
    return el("div", { class: "lane" },
      el("div", { class: "p" }, `P${p.id}`, p.reserved ? el("span", { title: "reserved for the latency class" }, "*") : null),
      el("div", {}, el("span", { class: "chip", style: `--c:${color(stateColor(p.state))}` }, p.state)),
      what,
      el("div", { class: "queue", title }, el("div", { class: "bar" },
        el("i", { style: `width:${(100 * Math.min(queued, most)) / most}%` })), el("span", { class: "count" }, count(queued))),
      el("div", { class: "strip-cell" }, drawStrip(strips[p.id] || [])),
      el("div", { class: "num soft rate" }, `${rate(per)} /s`));
  });
  const names = el("div", { class: "lane names" }, ...["", "state", "runs", "queue", "last minute"].map((name, i) => el("div", { class: i === 4 ? "strip-cell" : null }, name)), el("div", { class: "num rate" }, "switches"));
  byId("lanes").replaceChildren(names, ...lanes);
}

function showReasons(now) {
  const most = Math.max(1, ...now.reasons.map((reason) => reason.count));
  const rows = now.reasons.slice(0, 10).map(({ state, count: n }) => el("div", { class: "row" },
    el("div", {}, state),
    el("div", { class: "bar", style: `--c:${color(stateColor(state))}` }, el("i", { style: `width:${(100 * n) / most}%` })),
    el("div", { class: "num" }, count(n))));
  byId("reasons").replaceChildren(...(rows.length ? rows : [el("div", { class: "empty" }, "no goroutines")]));
}

function showThefts(now, before) {
  const thefts = now.thefts.map((row, thief) => row.map((n, victim) => Math.max(0, n - (before.thefts[thief]?.[victim] || 0))));
  const target = byId("thefts");
  const many = thefts.length > 16;
  target.classList.toggle("many", many);
  if (thefts.length < 2) {
    target.replaceChildren(el("div", { class: "empty" }, "with one processor nothing is stolen"));
    return;
  }
  const most = Math.max(1, ...thefts.flat());
  const label = (i) => (many && i % 4 ? "" : `${many ? "" : "P"}${i}`);
  const head = el("tr", {}, el("th"), ...thefts.map((_, i) => el("th", { scope: "col" }, label(i))));
  const rows = thefts.map((row, thief) => el("tr", {}, el("th", { scope: "row" }, label(thief)),
    ...row.map((n, victim) => {
      const title = `P${thief} took ${n} from P${victim}`;
      if (thief === victim) return el("td", { class: "self" }, many ? "" : "·");
      const heat = 0.08 + 0.72 * (n / most);
      return el("td", { title, style: n ? `background:rgba(var(--heat),${heat.toFixed(2)})` : null }, many || n === 0 ? "" : count(n));
    })));
  target.replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
}

function showSites(now, choose) {
  const bySite = new Map();
  for (const group of now.groups) {
    const site = bySite.get(group.site) || { site: group.site, count: 0, states: [] };
    site.count += group.count;
    site.states.push(group);
    bySite.set(group.site, site);
  }
  const sites = [...bySite.values()].sort((a, b) => b.count - a.count).slice(0, 12);
  byId("sites-note").textContent = `${now.groups_total} groups of site and state`;
  byId("sites").replaceChildren(...sites.map(({ site, count: n, states }) => {
    const row = el("tr", { class: "can", title: `list the goroutines of ${site}` },
      el("td", { class: "num" }, count(n)),
      el("td", { class: "site" }, site),
      el("td", { class: "hide-small soft" }, states.slice(0, 4).map((group) => `${count(group.count)} ${group.state}`).join(", ")));
    row.addEventListener("click", () => choose(site));
    return row;
  }));
}
