// Datasets: those in use by time, and all by capacity.

import { ask } from "./daemon.js";
import { at, el, put, Table } from "./dom.js";
import { joined, mean, NOTHING, quantile, events } from "./rates.js";
import { bytes, count, percent, time } from "./units.js";

const BUSY = 50;
const PAGE = 100;

function rate(row, name) {
  return row.classes[name] ? events(row.classes[name].times) / row.seconds : 0;
}

function data(row, name) {
  return (row.classes[name]?.bytes ?? 0) / row.seconds;
}

// What the operations of a dataset took, all together.
function whole(row) {
  row.times ??= Object.values(row.classes).reduce((sum, one) => joined(sum, one.times), NOTHING);
  return row.times;
}

const RATES = [
  { title: "Dataset", cell: (row) => row.name, key: (row) => row.name },
  { title: "Time", num: true, cell: (row) => (whole(row).sum / row.seconds / 1e9).toFixed(2), key: (row) => whole(row).sum / row.seconds, help: "operations under way, on average" },
  ...["read", "write", "sync"].map((name) => ({
    title: `${name[0].toUpperCase()}${name.slice(1)}s/s`, num: true,
    cell: (row) => count(rate(row, name)), key: (row) => rate(row, name),
  })),
  { title: "Names/s", num: true, cell: (row) => count(names(row)), key: names, help: "operations on names and attributes" },
  { title: "Read B/s", num: true, cell: (row) => bytes(data(row, "read")), key: (row) => data(row, "read") },
  { title: "Written B/s", num: true, cell: (row) => bytes(data(row, "write")), key: (row) => data(row, "write") },
  { title: "Mean", num: true, cell: (row) => time(mean(whole(row))), key: (row) => mean(whole(row)) || 0 },
  { title: "p99", num: true, cell: (row) => time(quantile(whole(row), 0.99)), key: (row) => quantile(whole(row), 0.99) || 0 },
  { title: "Errors/s", num: true, cell: (row) => count(errors(row)), key: errors },
];

function names(row) {
  return ["lookup", "names", "attributes", "other"].reduce((sum, name) => sum + rate(row, name), 0);
}

function errors(row) {
  return Object.values(row.classes).reduce((sum, one) => sum + one.errors, 0) / row.seconds;
}

/** The datasets that did something between two readings. */
export class Busy {
  constructor() {
    this.table = new Table(at("busy"), "Datasets by time", RATES, { sort: "Time", none: "no operation reached the daemon" });
  }

  show(rows) {
    this.table.show(rows, BUSY);
  }
}

const PROPS = ["used", "available", "referenced", "compressratio", "mounted", "type"];

function number(row, name) {
  return row.props.find((prop) => prop.name === name)?.number ?? 0;
}

function text(row, name) {
  return row.props.find((prop) => prop.name === name)?.text ?? "";
}

const CAPACITY = [
  { title: "Dataset", cell: (row) => row.name, key: (row) => row.name },
  { title: "Type", cell: (row) => row.kind, key: (row) => row.kind },
  ...[["Used", "used"], ["Available", "available"], ["Referenced", "referenced"]].map(([title, name]) => ({
    title, num: true, cell: (row) => bytes(number(row, name)), key: (row) => number(row, name),
  })),
  { title: "Of the pool", num: true, cell: (row) => percent(number(row, "used"), number(row, "used") + number(row, "available")), key: (row) => number(row, "used") / Math.max(1, number(row, "used") + number(row, "available")), help: "used, of what it could use" },
  { title: "Ratio", num: true, cell: (row) => text(row, "compressratio"), key: (row) => number(row, "compressratio"), help: "compression" },
];

/** All datasets, a page at a time: ten thousand stay quick. */
export class Capacity {
  constructor() {
    this.table = new Table(at("capacity"), "Datasets by capacity", CAPACITY, { sort: "Used", none: "no dataset" });
    this.more = el("button", { type: "button", hidden: true }, "Show more");
    at("capacity").append(this.more);
    this.all = [];
    this.most = PAGE;
    at("filter").addEventListener("input", () => {
      this.most = PAGE;
      this.draw();
    });
    this.more.addEventListener("click", () => {
      this.most += PAGE;
      this.draw();
    });
    at("reload").addEventListener("click", () => this.read());
  }

  async read() {
    put(at("dataset-count"), "reading");
    try {
      const query = { kinds: ["filesystem", "volume"], props: { named: PROPS } };
      const { answer } = await ask("datasets", { query });
      this.all = answer.datasets.map((dataset) => ({ id: dataset.name, ...dataset }));
      this.failed = answer.failures.length;
      this.draw();
    } catch (error) {
      put(at("dataset-count"), error.message);
    }
  }

  draw() {
    const wanted = at("filter").value.toLowerCase();
    const rows = this.all.filter((row) => row.name.toLowerCase().includes(wanted));
    this.table.show(rows, this.most);
    this.more.hidden = rows.length <= this.most;
    const failed = this.failed ? `; ${count(this.failed)} could not be read` : "";
    put(at("dataset-count"), `${count(Math.min(this.most, rows.length))} of ${count(rows.length)} shown, ${count(this.all.length)} in all${failed}`);
  }
}
