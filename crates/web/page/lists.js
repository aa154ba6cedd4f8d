// Transaction groups, the cache, slow operations, what is under way, events.

import { words } from "./daemon.js";
import { at, el, put, Table } from "./dom.js";
import { bytes, clock, count, date, percent, time } from "./units.js";

const STAGES = ["open", "quiescing", "waiting", "syncing"];

function bar(row) {
  const parts = STAGES.map((stage, n) => {
    const part = el("span", { className: stage, title: `${stage} ${time(row.took_ns[n])}` });
    part.style.width = `${(100 * row.took_ns[n]) / row.longest_of_all}%`;
    return part;
  });
  const title = STAGES.map((stage, n) => `${stage} ${time(row.took_ns[n])}`).join(", ");
  return el("div", { className: "bar", role: "img", "aria-label": title }, ...parts);
}

function waits(list) {
  return list.filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]).map(([name, ns]) => `${name} ${time(ns)}`).join(", ");
}

const GROUPS = [
  { title: "Pool", cell: (row) => row.pool },
  { title: "Txg", num: true, cell: (row) => row.txg },
  { title: "Closed by", cell: (row) => (row.closed ? words(row.closed) : row.stage), help: "why it closed, or its stage" },
  { title: "Dirty", num: true, cell: (row) => bytes(row.dirty) },
  { title: "Written", num: true, cell: (row) => bytes(row.written) },
  { title: "Open", num: true, cell: (row) => time(row.took_ns[0]) },
  { title: "Sync", num: true, cell: (row) => time(row.took_ns[3]) },
  { title: "Time line", cell: bar, help: "grey: open; violet: quiescing; orange: waiting; blue: syncing" },
  { title: "Sync waited for", cell: (row) => waits(row.waits) },
];

/** The newest transaction groups, the newest first. */
export class Groups {
  constructor() {
    this.table = new Table(at("txgs"), "Transaction groups", GROUPS, { none: "no transaction group" });
  }

  show(txgs, pool) {
    const rows = txgs.filter((row) => pool === "" || row.pool === pool).slice(-200).reverse();
    const newest = rows.sort((a, b) => a.age_ns - b.age_ns).slice(0, 20);
    const longest = Math.max(1, ...newest.map((row) => row.took_ns.reduce((sum, ns) => sum + ns, 0)));
    this.table.show(newest.map((row) => ({ id: `${row.pool} ${row.txg}`, longest_of_all: longest, ...row })));
  }
}

/** The facts about the cache. Returns what its chart shows. */
export function cache(stats, before, seconds) {
  const value = (name) => stats[name] ?? 0;
  const rate = (name) => (before ? Math.max(0, value(name) - (before[name] ?? 0)) / seconds : NaN);
  const [hits, misses] = [rate("hits"), rate("misses")];
  const share = hits + misses > 0 ? percent(hits, hits + misses) : "-";
  const facts = [
    ["size", bytes(value("size"))],
    ["target", `${bytes(value("c"))} of ${bytes(value("c_max"))}`],
    ["recently used", bytes(value("mru_size"))],
    ["often used", bytes(value("mfu_size"))],
    ["hits", `${share} of ${count(hits + misses)}/s`],
    ["since start", percent(value("hits"), value("hits") + value("misses"))],
    ["cache devices", bytes(value("l2_size"))],
  ];
  at("arc").replaceChildren(...facts.map(([name, text]) => el("span", {}, `${name} `, el("b", {}, text))));
  return { size: value("size"), target: value("c"), hits: hits + misses > 0 ? (100 * hits) / (hits + misses) : NaN };
}

function process(subject) {
  return subject.process ? `${subject.process}[${subject.pid}]` : subject.pid > 0 ? `[${subject.pid}]` : "";
}

function place(subject) {
  const where = subject.path ?? (subject.object === null || subject.object === undefined ? "" : `object ${subject.object}`);
  if (subject.txg) return `${subject.dataset} txg ${subject.txg}`;
  return where ? `${subject.dataset}:${where}` : subject.dataset;
}

const SLOW = [
  { title: "Ended", cell: (row) => clock(row.at_ns / 1e6), key: (row) => row.at_ns, num: true },
  { title: "Took", num: true, cell: (row) => time(row.took_ns), key: (row) => row.took_ns },
  { title: "Operation", cell: ({ subject }) => `${subject.op} (${subject.frontend})`, key: (row) => row.subject.op },
  { title: "Process", cell: ({ subject }) => process(subject), key: (row) => process(row.subject) },
  { title: "Place", wide: true, cell: ({ subject }) => place(subject), key: (row) => place(row.subject) },
  { title: "Bytes", num: true, cell: (row) => bytes(row.bytes), key: (row) => row.bytes },
  { title: "Error", cell: (row) => row.error ?? "", key: (row) => row.error ?? "" },
  { title: "Waited for", wide: true, cell: (row) => waits(row.waits) },
  { title: "Longest", wide: true, cell: ({ longest }) => (longest ? `${longest.wait} ${longest.what} ${time(longest.ns)}` : "") },
];

/** A table of slow operations. */
export function slowTable(where, caption, none) {
  return new Table(where, caption, SLOW, { sort: "Ended", none });
}

const UNDER_WAY = [
  { title: "Since", num: true, cell: (row) => time(row.age_ns), key: (row) => row.age_ns },
  { title: "Operation", cell: ({ subject }) => (subject.frontend ? `${subject.op} (${subject.frontend})` : words(subject.op)), key: (row) => row.subject.op },
  { title: "Process", cell: ({ subject }) => process(subject) },
  { title: "Place", wide: true, cell: ({ subject }) => place(subject) },
  { title: "Waits for", wide: true, cell: ({ wait }) => (wait ? `${wait.wait} ${wait.what} for ${time(wait.ns)}` : "computes") },
  { title: "Thread", cell: (row) => row.thread },
];

/** What is under way. The page's own requests are left out. */
export class UnderWay {
  constructor() {
    this.table = new Table(at("under-way"), "Operations under way", UNDER_WAY, { sort: "Since", none: "nothing" });
  }

  show(ops) {
    const others = ops.filter(({ subject }) => subject.frontend !== "control" || !OWN.has(subject.op));
    this.table.show(others.map((row) => ({ id: `${row.tid} ${row.subject.op}`, ...row })), 100);
  }
}

const OWN = new Set(["top", "txgs", "slow", "under_way", "kstats", "pool", "pool_names", "events", "datasets"]);

function detail(value) {
  const [kind, inner] = Object.entries(value)[0] ?? ["", ""];
  if (kind === "list") return inner.map(([name, one]) => `${name}=${detail(one)}`).join(" ");
  return Array.isArray(inner) ? inner.join(",") : String(inner);
}

const EVENTS = [
  { title: "Time", cell: (row) => date(row.time[0]) },
  { title: "Pool", cell: (row) => row.pool },
  { title: "Event", cell: (row) => row.class.replace(/^(sysevent|ereport|resource)\.fs\.zfs\./, ""), look: (row) => (row.class.startsWith("ereport") ? "bad" : "") },
  {
    title: "Details", wide: true,
    cell: (row) => row.line ??= el("details", {}, el("summary", {}, brief(row)), ...row.details.map(([name, value]) => el("div", {}, `${name} = ${detail(value)}`))),
  },
];

function brief(row) {
  const found = Object.fromEntries(row.details.map(([name, value]) => [name, detail(value)]));
  const told = ["vdev_path", "vdev_state", "history_internal_str", "history_dsname", "zio_err", "prev_state"];
  const text = told.filter((name) => found[name]).map((name) => `${name.replace(/^(vdev|history|zio)_/, "")} ${found[name]}`).join(", ");
  return text || row.class;
}

/** The newest events, the newest first. */
export class Events {
  constructor() {
    this.table = new Table(at("event-list"), "Events", EVENTS, { none: "no event" });
    this.all = [];
  }

  add(events) {
    this.all = [...events.map((event) => ({ id: event.eid, ...event })).reverse(), ...this.all].slice(0, 200);
    this.table.show(this.all);
  }

  clear() {
    this.all = [];
  }

  refuse(message) {
    this.table.none = message;
    this.table.show([]);
  }
}

/** Says in a table why it has no rows. */
export function refused(table, message) {
  table.none = message;
  table.show([]);
}

/** Says how many slow operations are missing. */
export function lost(n) {
  put(at("slow-lost"), n > 0 ? `${count(n)} more were not kept` : "");
}
