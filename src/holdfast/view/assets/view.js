// Draws the page that the server makes. It decides nothing: words, figures and places come ready.
"use strict";
const WIDE = { isTall: false, width: 190, height: 88, along: 110, across: 26, margin: 14, name: 22, text: 30 };
const TALL = { isTall: true, width: 150, height: 88, along: 60, across: 16, margin: 10, name: 17, text: 23 };
const NARROW = matchMedia("(max-width: 600px)"); // On a phone rows flow downwards: nobody has to scroll sideways for them.
let BOX = NARROW.matches ? TALL : WIDE;
const ROWS_AT_FIRST = 50;
const find = (id) => document.getElementById(id);
let page = {};

// -- small tools ---------------------------------------------------------------------------------
function make(name, set = {}, ...children) {
  const made = document.createElement(name);
  fill(made, set, children);
  return made;
}
function draw(name, set = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  fill(made, set, children);
  return made;
}
function fill(made, set, children) {
  for (const [key, value] of Object.entries(set)) made.setAttribute(key, value);
  made.append(...children);
}
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function mark(node, key, value) {
  if (node.getAttribute(key) !== value) node.setAttribute(key, value);
}
function patched(value, patch) { // RFC 7386, and by place where a list stays as long as it was
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const made = value && typeof value === "object" ? value : {};
  for (const key in patch) {
    const part = patch[key];
    if (part === null) delete made[key];
    else made[key] = typeof part === "object" ? patched(made[key], part) : part;
  }
  return made;
}

// -- head, warnings, tiles -----------------------------------------------------------------------
function showHead() {
  const title = `${page.title} – ${page.state.word} – Holdfast`;
  if (document.title !== title) document.title = title;
  say(find("title"), page.title);
  say(find("state"), page.state.word);
  mark(find("state"), "data-word", page.state.word);
  const isSaidBelow = page.warnings.some((one) => one.text === page.state.text);
  say(find("said"), page.state.word === "running" || isSaidBelow ? "" : page.state.text);
  say(find("location"), page.location);
}
function showAge() {
  if (!page.madeUnixS) return;
  const age = Math.max(0, Date.now() / 1000 - page.madeUnixS);
  const ago = age < 90 ? `${Math.round(age)} s` : age < 5400 ? `${Math.round(age / 60)} min`
    : `${Math.round(age / 3600)} h`;
  say(find("age"), isOpen ? `as of ${ago} ago` : `as of ${ago} ago; the view does not answer`);
}
function showWarnings() {
  find("warnings").replaceChildren(
    ...page.warnings.map((one) => make("li", { "data-level": one.level }, one.text)));
}
function showTiles() {
  const tiles = find("tiles");
  if (tiles.children.length !== page.tiles.length) {
    tiles.replaceChildren(...page.tiles.map(() =>
      make("div", {}, make("dt"), make("dd", { class: "value" }), make("dd"))));
  }
  page.tiles.forEach((tile, n) => {
    const [name, value, note] = tiles.children[n].children;
    say(name, tile.name);
    say(value, tile.value);
    say(note, tile.note);
  });
}

// -- the graph -----------------------------------------------------------------------------------
// Figures change at once where they can be seen, elsewhere in turns; what cannot be seen is not laid out, though it
// can be named and reached by keys. So an update costs the same however large a dataflow is. A box that goes down shows it at once.
const IN_TURN = 40;
const drawn = { boxes: new Map(), edges: new Map() };
const turn = { all: [], written: [], near: [], next: 0 };
let picked = "";
function corner(box) {
  return BOX.isTall
    ? [BOX.margin + box.row * (BOX.width + BOX.across), BOX.margin + box.layer * (BOX.height + BOX.along)]
    : [BOX.margin + box.layer * (BOX.width + BOX.along), BOX.margin + box.row * (BOX.height + BOX.across)];
}
function showGraph() {
  const { boxes, edges } = page.graph;
  drawn.boxes.clear();
  drawn.edges.clear();
  turn.all = [];
  turn.written = [];
  const places = Object.values(boxes).map(corner);
  const width = Math.max(0, ...places.map((p) => p[0])) + BOX.width + BOX.margin;
  const height = Math.max(0, ...places.map((p) => p[1])) + BOX.height + BOX.margin;
  const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `${Object.keys(boxes).length} sources, units and sinks` });
  svg.append(draw("defs", {}, draw("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4,
    markerWidth: 7, markerHeight: 7, orient: "auto" }, draw("path", { d: "M0 0L8 4L0 8z" }))));
  const lines = draw("g", { "aria-hidden": "true" });
  svg.append(lines);
  const isDense = Object.keys(edges).length > 200;
  for (const [key, edge] of Object.entries(edges)) {
    const [x1, y1] = corner(boxes[edge.from]);
    const [x2, y2] = corner(boxes[edge.to]);
    const [a, b, c, d] = BOX.isTall
      ? [x1 + BOX.width / 2, y1 + BOX.height, x2 + BOX.width / 2, y2 - 3]
      : [x1 + BOX.width, y1 + BOX.height / 2, x2 - 3, y2 + BOX.height / 2];
    const bend = BOX.isTall ? BOX.along / 2 : Math.max(30, Math.abs(c - a) / 2);
    const bent = BOX.isTall ? `${a} ${b + bend} ${c} ${d - bend}` : `${a + bend} ${b} ${c - bend} ${d}`;
    const path = draw("path", { d: `M${a} ${b}C${bent} ${c} ${d}`, "marker-end": "url(#tip)" });
    const group = draw("g", {}, path);
    const entry = { group, write: null, isFar: false, left: Math.min(a, c) - bend,
      right: Math.max(a, c) + bend, top: Math.min(b, d) - 20, bottom: Math.max(b, d) + 20 };
    if (!isDense) {
      const label = draw("text", { class: "edge", x: (a + c) / 2, y: (b + d) / 2 - 7 });
      const wait = draw("text", { class: "edge", x: (a + c) / 2, y: (b + d) / 2 + 15 });
      group.append(label, wait);
      entry.write = writer("edges", key, [label, wait]);
    }
    lines.append(group);
    drawn.edges.set(key, entry);
    turn.all.push(entry);
  }
  for (const [key, box] of Object.entries(boxes)) {
    const [x, y] = corner(box);
    const parts = [0, 1, 2].map((n) => draw("text", { class: n ? "" : "name", x: 12,
      y: 22 + n * 18 }));
    const steps = draw("text", { class: "soft", x: 12, y: 77 });
    parts[0].textContent = shortened(box.name, BOX.name);
    steps.textContent = shortened(box.kind === "unit" ? box.steps : box.kind, BOX.text);
    const group = draw("g", { class: "box", transform: `translate(${x} ${y})`, tabindex: 0,
      role: "button", "data-kind": box.kind, "aria-pressed": "false", "aria-label": box.name },
    draw("rect", { width: BOX.width, height: BOX.height, rx: 8 }), ...parts, steps);
    group.addEventListener("click", () => pick(key));
    group.addEventListener("keydown", (event) => step(event, key));
    group.addEventListener("focus", () => bring(entry));
    svg.append(group);
    const entry = { group, level: "", isFar: false, left: x, right: x + BOX.width, top: y,
      bottom: y + BOX.height, write: writer("boxes", key, parts.slice(1), group, box.name) };
    drawn.boxes.set(key, entry);
    turn.all.push(entry);
  }
  find("graph").replaceChildren(svg);
  turn.written = turn.all.filter((entry) => entry.write);
  turn.written.forEach((entry) => entry.write());
  lookNear();
}
function writer(kind, key, nodes, group, title) { // Writes what has changed since it last wrote.
  const names = kind === "boxes" ? ["first", "second"] : ["label", "wait"];
  const written = ["", ""];
  return () => {
    const live = page.live[kind][key];
    if (!live) return;
    let isNew = false;
    names.forEach((name, n) => {
      if (written[n] === live[name]) return;
      isNew = true;
      written[n] = live[name];
      nodes[n].textContent = shortened(live[name], BOX.text);
    });
    if (isNew && group) group.setAttribute("aria-label", [title, ...written].join(", "));
  };
}
const MARGIN = 120;
function lookNear() { // Which boxes and edges can be seen now, or soon.
  const holder = find("graph");
  const svg = holder.firstElementChild;
  if (!svg) return;
  const seen = holder.getBoundingClientRect();
  const origin = svg.getBoundingClientRect();
  const left = seen.left - origin.left - MARGIN;
  const right = seen.right - origin.left + MARGIN;
  const top = Math.max(0, seen.top) - origin.top - MARGIN;
  const bottom = Math.min(innerHeight, seen.bottom) - origin.top + MARGIN;
  turn.near = [];
  for (const one of turn.all) {
    const isFar = one.right < left || one.left > right || one.bottom < top || one.top > bottom;
    if (isFar !== one.isFar) one.group.classList.toggle("far", one.isFar = isFar);
    if (isFar) continue;
    if (!one.write) continue;
    turn.near.push(one);
    one.write();
  }
}
function bring(entry) { // What has the focus is to be seen; the browser knows no place of what is not laid out.
  const holder = find("graph");
  if (entry.isFar) {
    holder.scrollTo((entry.left + entry.right - holder.clientWidth) / 2,
      (entry.top + entry.bottom - holder.clientHeight) / 2);
    holder.scrollIntoView({ block: "nearest" });
  }
  lookNear();
}
let isLooking = false;
function lookSoon() {
  if (isLooking) return;
  isLooking = true;
  requestAnimationFrame(() => { isLooking = false; lookNear(); });
}
for (const [of, what] of [[find("graph"), "scroll"], [window, "scroll"], [window, "resize"]]) {
  of.addEventListener(what, lookSoon, { passive: true });
}
NARROW.addEventListener("change", () => { // The phone has been turned.
  BOX = NARROW.matches ? TALL : WIDE;
  if (!page.graph) return;
  picked = "";
  showGraph();
  showLive();
});
function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
function showLive() {
  for (const [key, box] of drawn.boxes) {
    const live = page.live.boxes[key];
    if (live && live.level !== box.level) {
      box.level = live.level;
      mark(box.group, "data-level", live.level);
    }
  }
  for (const entry of turn.near) entry.write();
  const count = Math.min(IN_TURN, turn.written.length);
  for (let n = 0; n < count; n += 1) turn.written[(turn.next + n) % turn.written.length].write();
  turn.next += count;
  if (picked) showPicked();
}
function pick(key) {
  if (picked) mark(drawn.boxes.get(picked).group, "aria-pressed", "false");
  picked = picked === key ? "" : key;
  if (picked) mark(drawn.boxes.get(key).group, "aria-pressed", "true");
  showPicked();
}
function showPicked() {
  if (!picked || !page.graph.boxes[picked]) return say(find("picked"), "");
  const box = page.graph.boxes[picked];
  const lines = Object.entries(page.graph.edges)
    .filter(([, edge]) => edge.from === picked || edge.to === picked)
    .map(([key, edge]) => {
      const live = page.live.edges[key];
      const other = edge.from === picked ? `to ${page.graph.boxes[edge.to].name}`
        : `from ${page.graph.boxes[edge.from].name}`;
      return live ? `${other}: ${[live.label, live.wait, live.boundary].filter(Boolean).join(", ")}`
        : other;
    });
  say(find("picked"), `${box.kind} ${box.name}. ${lines.join("; ")}`);
}
function step(event, key) { // Arrows lead along the edges; Enter and the space bar pick.
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    return pick(key);
  }
  const on = ["from", "to"];
  const back = ["to", "from"];
  const ends = { ArrowRight: on, ArrowLeft: back, ...(BOX.isTall && { ArrowDown: on, ArrowUp: back }) }[event.key];
  if (!ends) return;
  const edge = Object.values(page.graph.edges).find((one) => one[ends[0]] === key);
  if (!edge) return;
  event.preventDefault();
  drawn.boxes.get(edge[ends[1]]).group.focus();
}

// -- failures and recoveries ---------------------------------------------------------------------
function showTimeline() {
  const list = find("timeline");
  if (!page.timeline.length) {
    return list.replaceChildren(make("li", { "data-kind": "none" }, make("p", {}, "None so far.")));
  }
  list.replaceChildren(...page.timeline.map((one) => {
    const body = make("div", {}, make("p", {}, make("strong", {}, one.node),
      one.kind === "failure" ? ` failed: ${one.text}` : ` is back after ${one.total}, ${one.text}`));
    if (one.parts.length) {
      const bar = make("div", { class: "bar", "aria-hidden": "true" });
      one.parts.forEach((part, n) => {
        const piece = make("i", { class: `p${n}` });
        piece.style.flexGrow = part.ms || 0.01;
        bar.append(piece);
      });
      body.append(bar, make("p", { class: "where" },
        one.parts.map((part) => `${part.name} ${part.text}`).join(" · ")));
    }
    return make("li", { "data-kind": one.kind }, make("time", {}, one.at), body);
  }));
}

// -- tables --------------------------------------------------------------------------------------
// Those that cannot be seen are written every other second: a screen reader may be there.
const FAR_MS = 2000;
const tables = new Map();
const sights = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const table = tables.get(entry.target.dataset.table);
    table.isNear = entry.isIntersecting;
    if (table.isNear && table.isStale) showTable(entry.target.dataset.table);
  }
}, { rootMargin: "100px" });
for (const holder of document.querySelectorAll("[data-table]")) {
  tables.set(holder.dataset.table, { holder, shown: new Map(), most: ROWS_AT_FIRST, wanted: "",
    isNear: true, isStale: false, writtenMs: -FAR_MS });
  sights.observe(holder);
}
function showTableInTurn(name) {
  const table = tables.get(name);
  table.isStale = true;
  if (table.isNear || performance.now() > table.writtenMs + FAR_MS) showTable(name);
}
function showTable(name) {
  const table = tables.get(name);
  const { columns, rows } = page.tables[name];
  const { holder } = table;
  const optional = holder.closest("[data-optional]"); // Of one protection: shown where a unit has it.
  if (optional) optional.hidden = !Object.keys(rows).length;
  table.isStale = false;
  table.writtenMs = performance.now();
  const keys = Object.keys(rows).filter((key) =>
    !table.wanted || rows[key].join(" ").toLowerCase().includes(table.wanted));
  const visible = keys.slice(0, table.most);
  const shape = `${visible.join("\n")}|${keys.length}`;
  if (shape !== table.shape) {
    table.shape = shape;
    layTable(name, holder, table, columns, visible, keys.length, Object.keys(rows).length);
  }
  for (const key of visible) {
    const { row, cells, texts } = table.shown.get(key);
    rows[key].forEach((text, n) => {
      if (texts[n] !== text) cells[n].textContent = texts[n] = text;
    });
    if (name === "replicas") mark(row, "class", rows[key][2] === "running" ? "" : "down");
  }
}
function layTable(name, holder, table, columns, visible, matching, all) {
  table.shown.clear();
  const isNumber = (n) => n > 0 && /^(–|[\d.]+( ?\S{1,4})?(\/s)?)$/.test(
    Object.values(page.tables[name].rows)[0]?.[n] ?? "");
  const body = make("tbody");
  for (const key of visible) {
    const cells = columns.map((column, n) =>
      make(n ? "td" : "th", n ? { class: column === "Meaning" ? "long" : isNumber(n) ? "n" : "" }
        : { scope: "row" }));
    const row = make("tr", {}, ...cells);
    table.shown.set(key, { row, cells, texts: [] });
    body.append(row);
  }
  const head = make("tr", {}, ...columns.map((column, n) =>
    make("th", { scope: "col", class: isNumber(n) ? "n" : "" }, column)));
  const parts = [];
  if (all > ROWS_AT_FIRST) parts.push(table.find ||= finder(name, table));
  parts.push(visible.length ? make("div", { class: "scroll", tabindex: 0, role: "region",
    "aria-label": `Table of ${name}` }, make("table", {}, make("thead", {}, head), body))
    : make("p", { class: "empty" }, "Nothing to show."));
  if (matching > visible.length) {
    const more = make("button", { class: "more", type: "button" },
      `Show more; ${matching - visible.length} are hidden`);
    more.addEventListener("click", () => { table.most *= 4; showTable(name); });
    parts.push(more);
  }
  const had = table.find && document.activeElement === table.find.querySelector("input");
  holder.replaceChildren(...parts);
  if (had) table.find.querySelector("input").focus();
}
function finder(name, table) {
  const input = make("input", { type: "search" });
  input.addEventListener("input", () => {
    table.wanted = input.value.toLowerCase();
    showTable(name);
  });
  return make("label", { class: "find" }, `Find among ${name} `, input);
}

// -- rows of sinks -------------------------------------------------------------------------------
function showStreams() {
  const select = find("stream");
  select.replaceChildren(...page.streams.map(({ key, label }) =>
    make("option", { value: key }, label)));
  find("pick-rows").hidden = !page.streams.length;
  if (!page.streams.length) find("found-rows").replaceChildren(
    make("p", { class: "empty" }, "No sink keeps its rows here; they are where they were sent."));
}
find("pick-rows").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = find("stream").value;
  const answer = await fetch(`rows?stream=${encodeURIComponent(name)}`);
  const found = await answer.json();
  if (found.error) return find("found-rows").replaceChildren(make("p", { role: "alert" }, found.error));
  const rows = found.rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell))));
  const head = make("tr", {}, ...found.columns.map((column) =>
    make("th", { scope: "col" }, column || "type")));
  find("found-rows").replaceChildren(make("div", { class: "scroll", tabindex: 0, role: "region",
    "aria-label": `Last rows of ${name}` },
  make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
});

// -- actions -------------------------------------------------------------------------------------
const ASKED = {
  kill: ["Kill a unit", "Its processes get SIGKILL, and are replaced. What that costs, its guarantee says.", "Kill"],
  promote: ["Promote a secondary", "The secondaries of the unit take over now.", "Promote"],
  stop: ["Stop the query", "All nodes stop in order. Started again, it goes on.", "Stop"],
};
let asked = "";
function showActions() {
  find("actions").replaceChildren(...Object.keys(page.actions).map((action) => {
    const button = make("button", { type: "button" }, `${ASKED[action][0]}…`);
    button.addEventListener("click", () => ask(action));
    return button;
  }));
}
function ask(action) {
  asked = action;
  const [title, text, word] = ASKED[action];
  say(find("ask-h"), `${title}?`);
  say(find("ask-text"), text);
  say(find("ask-yes"), word);
  say(find("ask-answer"), "");
  find("ask-which").hidden = action === "stop";
  find("ask-target").replaceChildren(...page.actions[action].map((unit) => make("option", {}, unit)));
  find("ask-yes").disabled = false;
  find("ask").showModal();
}
find("ask-no").addEventListener("click", () => find("ask").close());
find("ask-yes").addEventListener("click", async () => {
  find("ask-yes").disabled = true;
  say(find("ask-answer"), "Asking…");
  const answer = await fetch(`actions/${asked}`, { method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ target: find("ask-target").value || "" }) });
  const said = await answer.json();
  if (said.error) {
    say(find("ask-answer"), said.error);
    find("ask-yes").disabled = false;
  } else find("ask").close();
});

// -- what comes in -------------------------------------------------------------------------------
let isOpen = false;
let changed = new Set();
function show() {
  const has = changed;
  changed = new Set();
  showHead();
  if (has.has("warnings")) showWarnings();
  if (has.has("tiles")) showTiles();
  if (has.has("graph")) { picked = ""; showGraph(); }
  if (has.has("live") || has.has("graph")) showLive();
  if (has.has("timeline")) showTimeline();
  if (has.has("tables")) for (const name of Object.keys(page.tables)) showTableInTurn(name);
  if (has.has("streams")) showStreams();
  if (has.has("steps")) say(find("steps"), page.steps.join("\n"));
  if (has.has("actions")) showActions();
  showAge();
}
function take(event) {
  const change = JSON.parse(event.data);
  page = patched(page, change);
  if (!changed.size) requestAnimationFrame(show);
  for (const name of Object.keys(change)) changed.add(name);
}
function listen() {
  const events = new EventSource("events");
  events.onopen = () => { isOpen = true; page = {}; };
  events.onerror = () => { isOpen = false; showAge(); };
  events.onmessage = take;
}
setInterval(showAge, 1000);
listen();
