// Pools and their devices.

import { at, el, Table } from "./dom.js";
import { words } from "./daemon.js";
import { bytes, count, date, percent, span, time } from "./units.js";

const STATES = {
  healthy: "ONLINE", degraded: "DEGRADED", faulted: "FAULTED", cant_open: "UNAVAIL",
  offline: "OFFLINE", removed: "REMOVED", closed: "CLOSED", unknown: "UNKNOWN",
};
const READ = 1;
const WRITE = 2;

function state(vdev) {
  return STATES[vdev.stat.state] ?? words(vdev.stat.state).toUpperCase();
}

function look(text) {
  if (text === "ONLINE" || text === "AVAIL") return "good";
  return text === "DEGRADED" || text === "OFFLINE" || text === "INUSE" ? "warn" : "bad";
}

// What a scrub or resilver has done, as `zpool status` counts it.
function scan(stat, now) {
  if (!stat || stat.func === "none") return null;
  const name = stat.func === "scrub" ? "scrub" : "resilver";
  const healed = `${bytes(stat.processed)} repaired, ${count(stat.errors)} errors`;
  if (stat.state === "finished") return { text: `last ${name} ${date(stat.end_time)}: ${healed}` };
  if (stat.state !== "scanning") return { text: `${name} ${words(stat.state)} ${date(stat.end_time)}` };
  const whole = Math.max(0, stat.to_examine - stat.skipped);
  const part = { done: stat.issued, whole };
  const progress = `${name} ${percent(stat.issued, whole)}`;
  if (stat.pass_scrub_pause > 0) return { text: `${progress}, paused; ${healed}`, part };
  const ran = Math.max(1, now - stat.pass_start - stat.pass_scrub_spent_paused);
  const rate = stat.pass_issued / ran;
  const left = rate > 0 ? `, ${span((whole - stat.issued) / rate)} left` : "";
  return { text: `${progress}, ${bytes(rate)}/s${left}; ${healed}`, part };
}

function progress(title, stat, done, whole) {
  if (!stat || stat.state !== "scanning") return [];
  return [{ text: `${title} ${percent(stat[done], stat[whole])}`, part: { done: stat[done], whole: stat[whole] } }];
}

// Everything long that is under way, or that ended.
function work(pool) {
  const now = Date.now() / 1000;
  const rebuilds = pool.root.children.filter((top) => top.rebuild?.state === "active");
  return [
    scan(pool.scan, now),
    ...rebuilds.map(({ rebuild }) => ({
      text: `sequential resilver ${percent(rebuild.bytes_issued, rebuild.bytes_est)}`,
      part: { done: rebuild.bytes_issued, whole: rebuild.bytes_est },
    })),
    ...progress("removal of a device", pool.removal, "copied", "to_copy"),
    ...progress("expansion of a raidz", pool.expand, "reflowed", "to_reflow"),
  ].filter(Boolean);
}

function card(pool) {
  const { stat } = pool.root;
  const text = pool.suspended ? "SUSPENDED" : state(pool.root);
  const parts = [
    el("h3", {}, el("span", {}, pool.name), el("span", { className: `state ${look(text)}` }, text)),
    el("meter", { min: 0, max: Math.max(1, stat.space), high: 0.9 * stat.space, value: stat.alloc, "aria-label": `${pool.name}: space used` }),
    el("p", {}, `${bytes(stat.alloc)} of ${bytes(stat.space)} used (${percent(stat.alloc, stat.space)})`
      + (Number.isFinite(stat.fragmentation) ? `, fragmentation ${stat.fragmentation} %` : "")),
  ];
  for (const one of work(pool)) {
    parts.push(el("p", {}, one.text));
    if (one.part) parts.push(el("progress", { max: Math.max(1, one.part.whole), value: one.part.done, "aria-label": one.text }));
  }
  if (pool.error_count > 0) parts.push(el("p", { className: "bad" }, `${count(pool.error_count)} damaged objects: zpool status -v ${pool.name}`));
  if (pool.status !== "ok") parts.push(el("p", { className: "warn" }, `${words(pool.status)}: zpool status ${pool.name}`));
  if (pool.slow_group) parts.push(el("p", { className: "bad" }, `the transaction group has been syncing for ${span(pool.slow_group)}`));
  if (pool.stale) parts.push(el("p", { className: "bad" }, "the pool does not answer; this is an older state"));
  return el("article", { className: "card" }, ...parts);
}

/** Shows a card for each pool. */
export function cards(pools) {
  const made = pools.map(card);
  at("pool-cards").replaceChildren(...(made.length > 0 ? made : [el("p", {}, "No pool is imported. zpool import lists those that could be.")]));
}

function name(vdev) {
  if (vdev.path) return vdev.path.split("/").pop();
  if (vdev.kind === "root") return "";
  const parity = vdev.kind === "raidz" || vdev.kind === "draid" ? vdev.nparity : "";
  return `${vdev.kind}${parity}-${vdev.id}`;
}

// The rows of a device and of those below it.
function rows(vdev, level, pool, role, into) {
  const shown = level === 0 ? pool : name(vdev);
  if (!vdev.is_hole) into.push({ id: `${pool} ${role} ${vdev.guid} ${vdev.id}`, vdev, level, name: shown, role });
  for (const child of vdev.children) {
    const kind = level > 0 ? role : child.is_log ? "log" : (child.alloc_bias ?? "");
    rows(child, level + 1, pool, kind, into);
  }
}

function all(pools) {
  const into = [];
  for (const pool of pools) {
    rows(pool.root, 0, pool.name, "", into);
    for (const spare of pool.spares) rows(spare, 1, pool.name, "spare", into);
    for (const cache of pool.l2cache) rows(cache, 1, pool.name, "cache", into);
  }
  return into;
}

// Rates since the reading before.
function rate(row, of) {
  return row.before && row.seconds > 0 ? Math.max(0, of(row.vdev.stat) - of(row.before)) / row.seconds : NaN;
}

function served(row, io) {
  const sum = (stat) =>
    (stat.io?.classes ?? []).filter((one) => one.io === io).reduce(([n, ns], one) => [n + one.ops, ns + one.disk_sum_ns], [0, 0]);
  if (!row.before) return NaN;
  const [now, then] = [sum(row.vdev.stat), sum(row.before)];
  return now[0] > then[0] ? (now[1] - then[1]) / (now[0] - then[0]) : NaN;
}

function busy(row) {
  const leaves = row.vdev.children.length === 0;
  const sum = (stat) => (stat.io?.classes ?? []).reduce((ns, one) => ns + one.disk_sum_ns, 0);
  return leaves ? rate(row, sum) / 1e9 : NaN;
}

function label(row) {
  const { vdev } = row;
  const text = row.role === "spare" ? (vdev.stat.aux === "spared" ? "INUSE" : "AVAIL") : state(vdev);
  return row.role === "spare" && state(vdev) !== "ONLINE" ? state(vdev) : text;
}

const COLUMNS = [
  {
    title: "Name",
    cell: (row) => el("span", { className: `tree-${Math.min(3, row.level)}` }, row.name + (row.role && row.level === 1 ? ` (${row.role})` : "")),
  },
  { title: "State", cell: label, look: (row) => look(label(row)) },
  { title: "Reads/s", num: true, cell: (row) => count(rate(row, (stat) => stat.ops[READ])) },
  { title: "Writes/s", num: true, cell: (row) => count(rate(row, (stat) => stat.ops[WRITE])) },
  { title: "Read B/s", num: true, cell: (row) => bytes(rate(row, (stat) => stat.bytes[READ]) || 0) },
  { title: "Written B/s", num: true, cell: (row) => bytes(rate(row, (stat) => stat.bytes[WRITE]) || 0) },
  { title: "Read takes", num: true, cell: (row) => time(served(row, "read")), help: "mean time of a read, from the device" },
  { title: "Write takes", num: true, cell: (row) => time(served(row, "write")), help: "mean time of a write, to the device" },
  { title: "At work", num: true, cell: (row) => (Number.isFinite(busy(row)) ? busy(row).toFixed(2) : ""), help: "operations that the device had, on average" },
  {
    title: "Errors r/w/c", num: true,
    cell: ({ vdev: { stat } }) => `${count(stat.read_errors)}/${count(stat.write_errors)}/${count(stat.checksum_errors)}`,
    look: ({ vdev: { stat } }) => (stat.read_errors + stat.write_errors + stat.checksum_errors > 0 ? "bad" : ""),
    help: "reads and writes that failed, wrong checksums",
  },
  { title: "Slow", num: true, cell: ({ vdev }) => count(vdev.stat.slow_ios), help: "operations beyond zio_slow_io_ms" },
  { title: "Allocated", num: true, cell: ({ vdev: { stat } }) => (stat.space > 0 ? `${bytes(stat.alloc)} / ${bytes(stat.space)}` : "") },
  { title: "Path", cell: ({ vdev }) => vdev.path ?? "" },
  { title: "Identity", cell: ({ vdev }) => vdev.devid ?? vdev.phys_path ?? "", help: "model and serial number, or the place of the device" },
];

/** The table of all devices. */
export class Devices {
  constructor() {
    this.table = new Table(at("device-tree"), "Devices", COLUMNS, { none: "no devices" });
    this.before = new Map();
    this.read = 0;
  }

  show(pools) {
    const now = performance.now();
    const seconds = (now - this.read) / 1000;
    const list = all(pools);
    for (const row of list) Object.assign(row, { before: this.before.get(row.id), seconds });
    this.table.show(list);
    this.before = new Map(list.map((row) => [row.id, row.vdev.stat]));
    this.read = now;
  }
}
