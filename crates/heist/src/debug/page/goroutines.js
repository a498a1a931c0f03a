// The list of goroutines: it is asked for when its filter changes, and again every few seconds.
const goroutineList = { open: null, stack: "", busy: false };

async function loadGoroutines() {
  if (goroutineList.busy) return;
  goroutineList.busy = true;
  try {
    const query = new URLSearchParams({ limit: 50, state: byId("f-state").value, site: byId("f-site").value });
    const answer = await fetch(`/debug/goroutines.json?${query}`);
    if (answer.ok) showGoroutines(await answer.json());
  } catch {
    // The next state that cannot be had tells about it.
  } finally {
    goroutineList.busy = false;
  }
}

function showGoroutines({ total, goroutines }) {
  byId("list-note").textContent = total > goroutines.length ? `the first ${goroutines.length} of ${count(total)}` : `${total}`;
  const rows = goroutines.flatMap((g) => {
    const waited = g.waited_min > 0 && !["running", "runnable"].includes(g.state) ? `, ${g.waited_min} min` : "";
    const row = el("tr", { class: "can", "aria-expanded": g.id === goroutineList.open },
      el("td", { class: "num" }, String(g.id)),
      el("td", {}, el("span", { class: "chip", style: `--c:${color(stateColor(g.state))}` }, g.state), el("span", { class: "soft" }, waited)),
      el("td", { class: "site" }, g.name ? el("strong", {}, `${g.name} `) : "", shortSite(g.site)),
      el("td", { class: "num hide-small soft" }, g.parent ? String(g.parent) : "–"));
    row.addEventListener("click", () => openGoroutine(g.id === goroutineList.open ? null : g.id));
    if (g.id !== goroutineList.open) return [row];
    return [row, el("tr", {}, el("td", {}), el("td", { colspan: 3 }, el("pre", {}, goroutineList.stack)))];
  });
  byId("list").replaceChildren(...(rows.length ? rows : [el("tr", {}, el("td", { colspan: 4, class: "empty" }, "no such goroutine"))]));
}

async function openGoroutine(id) {
  goroutineList.open = id;
  goroutineList.stack = id === null ? "" : "…";
  if (id !== null) {
    try {
      // A server with a token asks for it here: it is the one with which this page was opened.
      const token = new URLSearchParams(location.search).get("token");
      const query = token === null ? "" : `&token=${encodeURIComponent(token)}`;
      const answer = await fetch(`/debug/goroutines?debug=2&id=${id}${query}`);
      goroutineList.stack = (await answer.text()).trim() || "it has ended";
    } catch {
      goroutineList.stack = "no answer";
    }
  }
  loadGoroutines();
}

// The states that exist now; the one that is chosen stays.
function offerStates(now) {
  const select = byId("f-state");
  if (document.activeElement === select) return;
  const names = new Set(now.reasons.map((reason) => reason.state).sort());
  if (select.value) names.add(select.value);
  const chosen = select.value;
  select.replaceChildren(el("option", { value: "" }, "any state"), ...[...names].map((name) => el("option", { value: name }, name)));
  select.value = chosen;
}
