// The page: asks the daemon, and shows its answers.

import { Chart } from "./charts.js";
import { ask, digits, hasToken, pairs } from "./daemon.js";
import { Busy, Capacity } from "./datasets.js";
import { at, el, put, Table } from "./dom.js";
import { Heat, offer } from "./heat.js";
import { cache, Events, Groups, lost, refused, slowTable, UnderWay } from "./lists.js";
import { cards, Devices } from "./pools.js";
import { added, events, joined, mean, NOTHING, Past, quantile, Reader } from "./rates.js";
import { bytes, count, time } from "./units.js";

const SERIES = ["read", "write", "sync", "names", "readBytes", "writtenBytes", "readTime", "writeTime", "syncTime", "dirty", "throttled"];
const NAMES = ["lookup", "names", "attributes", "other"];
const SLOW_KEPT = 5000;

const page = { pool: "", span: 300, live: true, slow: [], cell: null };
/** The numbers of each pool, and of all under the empty name. */
const past = new Map();
const arcPast = new Past(["size", "target", "hits"]);
let charts = [];

function pastOf(pool) {
  if (!past.has(pool)) past.set(pool, new Past(SERIES));
  return past.get(pool);
}

// Adds numbers of a pool to those of this round.
function know(pool, values) {
  page.numbers.set(pool, { ...page.numbers.get(pool), ...values });
}

// ---- Operations by datasets ----

const datasetReader = new Reader();

function classesOf(list, before) {
  const old = new Map((before ?? []).map((one) => [one.class, one]));
  const made = {};
  for (const one of list) {
    const then = old.get(one.class);
    const times = added(one.times, then?.times);
    const more = { times, bytes: one.bytes - (then?.bytes ?? 0), errors: one.errors - (then?.errors ?? 0) };
    if (events(times) > 0) made[one.class] = more;
  }
  return made;
}

function plus(sum, classes) {
  for (const [name, one] of Object.entries(classes)) {
    const old = sum[name] ?? { times: NOTHING, bytes: 0, errors: 0 };
    sum[name] = { times: joined(old.times, one.times), bytes: old.bytes + one.bytes, errors: old.errors + one.errors };
  }
  return sum;
}

// All classes of a pool, whether its datasets are in the list or not.
function totals(pool) {
  const sum = {};
  for (const list of [...pool.datasets.map((one) => one.classes), pool.other_datasets]) plus(sum, asClasses(list));
  return Object.entries(sum).map(([name, one]) => ({ class: name, ...one }));
}

function asClasses(list) {
  return Object.fromEntries(list.map((one) => [one.class, one]));
}

function numbers(classes, seconds) {
  const of = (name) => classes[name] ?? { times: NOTHING, bytes: 0 };
  const rate = (name) => events(of(name).times) / seconds;
  return {
    read: rate("read"),
    write: rate("write"),
    sync: rate("sync"),
    names: NAMES.reduce((sum, name) => sum + rate(name), 0),
    readBytes: of("read").bytes / seconds,
    writtenBytes: of("write").bytes / seconds,
    readTime: mean(of("read").times),
    writeTime: mean(of("write").times),
    syncTime: mean(of("sync").times),
  };
}

async function readDatasets() {
  const { answer } = await ask("top", { query: { view: "datasets", limit: 200, last: true } });
  const step = datasetReader.next(answer);
  if (!step) return;
  const old = new Map(step.before.pools.map((pool) => [pool.number, pool]));
  const rows = [];
  const whole = {};
  for (const pool of answer.pools) {
    const then = old.get(pool.number);
    // A pool that was imported since then has counted from nothing.
    const classes = classesOf(totals(pool), then ? totals(then) : []);
    plus(whole, classes);
    know(pool.name, numbers(classes, step.seconds));
    const before = new Map((then?.datasets ?? []).map((one) => [one.number, one]));
    for (const one of pool.datasets) {
      // Without an earlier reading, only what began since then is known.
      if (!before.has(one.number) && one.number < step.before.next) continue;
      const made = classesOf(one.classes, before.get(one.number)?.classes);
      if (Object.keys(made).length > 0) rows.push({ id: `${pool.number} ${one.number}`, pool: pool.name, name: one.name, classes: made, seconds: step.seconds });
    }
  }
  know("", numbers(whole, step.seconds));
  busy.show(rows.filter((row) => page.pool === "" || row.pool === page.pool));
}

// ---- Operations by kind, and the heat map ----

const opReader = new Reader();
const KINDS = [
  { title: "Operation", cell: (row) => row.op, key: (row) => row.op },
  { title: "Via", cell: (row) => row.frontend, key: (row) => row.frontend },
  { title: "Count/s", num: true, cell: (row) => count(row.rate), key: (row) => row.rate },
  { title: "Bytes/s", num: true, cell: (row) => bytes(row.bytes), key: (row) => row.bytes },
  { title: "Mean", num: true, cell: (row) => time(mean(row.times)), key: (row) => mean(row.times) },
  { title: "p50", num: true, cell: (row) => time(quantile(row.times, 0.5)), key: (row) => quantile(row.times, 0.5) },
  { title: "p99", num: true, cell: (row) => time(quantile(row.times, 0.99)), key: (row) => quantile(row.times, 0.99) },
  { title: "Errors/s", wide: true, cell: (row) => row.errors.map(([name, n]) => `${name} ${count(n)}`).join(", ") },
];

async function readOps() {
  const { answer } = await ask("top", { query: { view: "ops" } });
  const step = opReader.next(answer);
  if (!step) return;
  const before = new Map();
  for (const pool of step.before.pools) for (const op of pool.ops) before.set(`${pool.number} ${op.frontend} ${op.op}`, op);
  const kinds = new Map();
  for (const pool of answer.pools.filter((one) => page.pool === "" || one.name === page.pool)) {
    for (const op of pool.ops) {
      const then = before.get(`${pool.number} ${op.frontend} ${op.op}`);
      const times = added(op.times, then?.times);
      if (events(times) === 0) continue;
      const id = `${op.frontend} ${op.op}`;
      const failed = new Map(then?.errors ?? []);
      const errors = op.errors.map(([name, n]) => [name, (n - (failed.get(name) ?? 0)) / step.seconds]).filter(([, n]) => n > 0);
      const row = kinds.get(id) ?? { id, op: op.op, frontend: op.frontend, rate: 0, bytes: 0, times: NOTHING, errors: [] };
      row.rate += events(times) / step.seconds;
      row.bytes += (op.bytes - (then?.bytes ?? 0)) / step.seconds;
      row.times = joined(row.times, times);
      row.errors = [...row.errors, ...errors];
      kinds.set(id, row);
    }
  }
  const rows = [...kinds.values()];
  kindTable.show(rows);
  offer(rows.map((row) => row.op));
  heat.add(Date.now(), step.seconds, rows.map((row) => [row.op, row.times.buckets]));
  heat.draw();
}

// ---- The rest ----

let txgsBefore = new Map();
let txgsRead = 0;

async function readTxgs() {
  const { answer } = await ask("txgs", { pool: null });
  groups.show(answer.txgs, page.pool);
  const now = performance.now();
  const seconds = (now - txgsRead) / 1000;
  const sum = { dirty: 0, throttled: 0 };
  for (const one of answer.totals) {
    const then = txgsBefore.get(one.pool);
    const more = then ? Math.max(0, one.throttled_ns - then.throttled_ns) / seconds / 1e9 : 0;
    know(one.pool, { dirty: one.dirty, throttled: more });
    sum.dirty += one.dirty;
    sum.throttled += more;
  }
  know("", sum);
  txgsBefore = new Map(answer.totals.map((one) => [one.pool, one]));
  txgsRead = now;
}

async function readPools() {
  const { answer: names } = await ask("pool_names");
  const asked = names.map((name) => ask("pool", { name, query: { io: true } }));
  // A pool that was exported meanwhile is no failure of the page.
  const pools = (await Promise.allSettled(asked)).filter((one) => one.status === "fulfilled").map((one) => one.value.answer);
  cards(pools);
  devices.show(pools.filter((pool) => page.pool === "" || pool.name === page.pool));
  const select = at("pool");
  const same = names.length === select.options.length - 1 && names.every((name, n) => select.options[n + 1].value === name);
  if (!same) {
    select.replaceChildren(el("option", { value: "" }, "all"), ...names.map((name) => el("option", { value: name }, name)));
    select.value = names.includes(page.pool) ? page.pool : "";
    page.pool = select.value;
    capacity.read();
  }
}

let arcBefore = null;
let arcRead = 0;

async function readCache() {
  const { answer } = await ask("kstats");
  const found = answer.find((kstat) => kstat.name === "arcstats");
  if (!found) return;
  const stats = Object.fromEntries(found.values.map(([name, value]) => [name, value.Number ?? value.number ?? 0]));
  const now = performance.now();
  arcPast.add(Date.now(), cache(stats, arcBefore, (now - arcRead) / 1000));
  [arcBefore, arcRead] = [stats, now];
}

let slowNext = "[]";

async function readSlow() {
  const least = Number(at("least").value) * 1e6;
  const query = `{"query":{"least_ns":${least},"next":${slowNext}}}`;
  const { answer, text } = await ask("slow", query);
  slowNext = pairs(text, "next");
  lost(answer.lost);
  const rows = answer.ops.map((op) => ({ id: `${op.at_ns} ${op.subject.pid} ${op.took_ns} ${(page.number += 1)}`, ...op }));
  page.slow = [...page.slow, ...rows].slice(-SLOW_KEPT);
  const mine = page.slow.filter(({ subject }) => isOfPool(subject));
  slowList.show(mine.slice(-500), 100);
}

let eventsAfter = 0;
let teller = "0";

async function readEvents() {
  const { answer, text } = await ask("events", `{"query":{"after":${eventsAfter},"teller":${teller}}}`);
  const next = digits(text, "teller");
  if (next !== teller) eventList.clear();
  teller = next;
  eventsAfter = Math.max(0, ...answer.events.map((event) => event.eid), next === teller ? eventsAfter : 0);
  if (answer.events.length > 0) eventList.add(answer.events);
}

async function readUnderWay() {
  const { answer } = await ask("under_way");
  underWay.show(answer.ops);
}

// The operations of a cell of the heat map: those that the page has kept, and the slowest of each
// minute, which the daemon keeps.
async function open(cell) {
  const place = el("div", {});
  at("heat-cell").replaceChildren(place);
  const table = slowTable(place, "Operations of the cell", "none is kept: the page keeps those of the list of slow operations, and the daemon the slowest of each minute");
  const wanted = at("heat-op").value;
  const within = (op) => op.at_ns / 1e6 > cell.from && op.at_ns / 1e6 <= cell.until && op.took_ns >= cell.low && op.took_ns < cell.high;
  const mine = ({ subject }) => (wanted === "" || subject.op === wanted) && isOfPool(subject);
  const found = new Map();
  const show = (ops) => {
    for (const op of ops.filter((one) => within(one) && mine(one))) {
      const id = `${op.at_ns} ${op.took_ns} ${op.subject.pid}`;
      found.set(id, { ...op, id });
    }
    table.show([...found.values()], 200);
  };
  show(page.slow);
  try {
    const query = `{"query":{"least_ns":${cell.low},"since_ns":${Math.floor(cell.from)}000000}}`;
    const { answer } = await ask("slow", query);
    show(answer.ops);
  } catch (error) {
    refused(table, error.message);
  }
}

function isOfPool(subject) {
  return page.pool === "" || subject.dataset.split(/[/@]/)[0] === page.pool;
}

// ---- Charts ----

function line(name, title, n) {
  return { name, title, colour: `--c${n}` };
}

function build() {
  const place = at("charts");
  charts = [
    [new Chart(place, "Operations per second", [line("read", "read", 1), line("write", "write", 2), line("sync", "sync", 3), line("names", "names", 4)], count)],
    [new Chart(place, "Bytes per second", [line("readBytes", "read", 1), line("writtenBytes", "written", 2)], bytes, true)],
    [new Chart(place, "Mean time of an operation", [line("readTime", "read", 1), line("writeTime", "write", 2), line("syncTime", "sync", 3)], time)],
    [new Chart(place, "Dirty bytes", [line("dirty", "dirty", 2)], bytes, true)],
    [new Chart(at("arc-chart"), "Size", [line("size", "size", 1), line("target", "target", 4)], bytes, true), arcPast],
    [new Chart(at("arc-chart"), "Hits in per cent", [line("hits", "hits", 3)], (value) => value.toFixed(0)), arcPast],
  ];
}

function drawCharts() {
  for (const [chart, from] of charts) chart.show((from ?? pastOf(page.pool)).last(page.span, chart.lines.map((one) => one.name)));
}

function repaint() {
  charts.forEach(([chart]) => chart.draw());
  drawCharts();
  heat.draw();
}

// ---- The loop ----

const heat = new Heat(at("heat"), open);
const busy = new Busy();
const capacity = new Capacity();
const groups = new Groups();
const devices = new Devices();
const underWay = new UnderWay();
const eventList = new Events();
const slowList = slowTable(at("slow-list"), "Slow operations", "none since the page was opened");
const kindTable = new Table(at("kinds"), "Operations by kind", KINDS, { sort: "Count/s", none: "no operation reached the daemon" });

/** What is read, how often in seconds, and where a refusal is shown. */
const PARTS = [
  { read: readDatasets, each: 1, table: () => busy.table },
  { read: readOps, each: 1, table: () => kindTable },
  { read: readTxgs, each: 1, table: () => groups.table },
  { read: readSlow, each: 1, table: () => slowList },
  { read: readPools, each: 2 },
  { read: readUnderWay, each: 2, table: () => underWay.table },
  { read: readCache, each: 2 },
  { read: readEvents, each: 3, table: () => eventList.table },
];

function say(text, isBad) {
  put(at("status"), text);
  at("status").className = isBad ? "bad" : "";
}

async function run(part, round) {
  if (part.denied || round % part.each !== 0) return null;
  try {
    await part.read();
    return null;
  } catch (error) {
    if (error.kind === "permission" || error.kind === "delegation_off") {
      part.denied = true;
      if (part.table) refused(part.table(), "only the daemon's user and root may see this");
      return null;
    }
    return error;
  }
}

async function round(number) {
  const failed = (await Promise.all(PARTS.map((part) => run(part, number)))).filter(Boolean);
  const now = Date.now();
  for (const [pool, values] of page.numbers) pastOf(pool).add(now, values);
  page.numbers.clear();
  drawCharts();
  if (failed.length === 0) say(`Live. The numbers are of the last second; the page keeps an hour.`, false);
  else say(`${failed[0].message}. The page tries again.`, true);
  return !failed.some((error) => error.kind === "token");
}

async function loop() {
  for (let number = 0; ; number += 1) {
    const began = performance.now();
    if (page.live && !document.hidden && !(await round(number))) {
      say("The token is of an earlier run. Open the URL that poolhouse web prints.", true);
      return;
    }
    const left = Math.max(50, 1000 - (performance.now() - began));
    await new Promise((done) => setTimeout(done, left));
  }
}

function controls() {
  at("pool").addEventListener("change", () => {
    page.pool = at("pool").value;
    drawCharts();
  });
  at("span").addEventListener("change", () => {
    page.span = heat.seconds = Number(at("span").value);
    drawCharts();
    heat.draw();
  });
  at("heat-op").addEventListener("change", () => {
    heat.op = at("heat-op").value;
    heat.draw();
  });
  at("live").addEventListener("click", () => {
    page.live = !page.live;
    at("live").setAttribute("aria-pressed", String(page.live));
    put(at("live"), page.live ? "Live" : "Stopped");
    if (!page.live) say("Stopped. The numbers are of the moment when they were stopped.", false);
  });
  const themes = ["system", "light", "dark"];
  const choose = (theme) => {
    localStorage.setItem("poolhouse-theme", theme);
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    put(at("theme"), `Theme: ${theme}`);
  };
  choose(themes.includes(localStorage.getItem("poolhouse-theme")) ? localStorage.getItem("poolhouse-theme") : "system");
  at("theme").addEventListener("click", () => {
    const now = localStorage.getItem("poolhouse-theme");
    choose(themes[(themes.indexOf(now) + 1) % themes.length]);
    repaint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  at("controls").addEventListener("submit", (event) => event.preventDefault());
}

page.numbers = new Map();
page.number = 0;
build();
controls();
if (hasToken()) loop();
else say("The page has no token. Open the URL that poolhouse web prints.", true);
