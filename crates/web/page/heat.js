// The heat map: how many operations took how long, by moments.

import { colour } from "./charts.js";
import { at, el, put } from "./dom.js";
import { clock, count, time } from "./units.js";

// Rows are powers of two of nanoseconds: 1 µs to 34 s, the first and last without an end.
const FIRST = 10;
const ROWS = 26;
const WIDTH = 7;
const LEFT = 56;
const BELOW = 18;
const HEIGHT = 300;

/** The row of a time. Upper limits of buckets are one less than a power, or below it. */
export function rowOf(ns) {
  return Math.min(ROWS - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, ns))) - FIRST));
}

/** The times of a row: from, and up to. */
export function timesOf(row) {
  const low = row === 0 ? 0 : 2 ** (row + FIRST);
  return [low, row === ROWS - 1 ? Infinity : 2 ** (row + FIRST + 1)];
}

export class Heat {
  /** `choose({ from, until, low, high, count })` is called with the chosen cell. */
  constructor(place, choose) {
    this.choose = choose;
    this.moments = [];
    this.cursor = null;
    this.seconds = 300;
    this.op = "";
    this.canvas = el("canvas", { tabIndex: 0, role: "img" });
    this.about = el("p", { className: "note", role: "status" }, "No operation yet.");
    place.replaceChildren(this.canvas, this.about);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("click", (event) => {
      this.point(event);
      this.pick();
    });
  }

  /** Adds what was counted until a moment, by operations, each with its buckets. */
  add(ms, seconds, ops) {
    const rows = new Map();
    for (const [op, buckets] of ops) {
      const row = rows.get(op) ?? new Uint32Array(ROWS);
      for (const [limit, n] of buckets) row[rowOf(limit)] += n;
      rows.set(op, row);
    }
    this.moments.push({ until: ms, from: ms - seconds * 1000, rows });
    if (this.moments.length > 3600) this.moments.shift();
  }

  // The columns that fit, the last one with the newest moment.
  columns() {
    const width = Math.max(1, this.canvas.clientWidth - LEFT);
    const most = Math.max(10, Math.floor(width / WIDTH));
    const each = Math.max(1000, Math.ceil((this.seconds * 1000) / most / 1000) * 1000);
    const end = Math.ceil((this.moments.at(-1)?.until ?? Date.now()) / each) * each;
    const number = Math.min(most, Math.ceil((this.seconds * 1000) / each));
    const all = Array.from({ length: number }, (_, n) => ({
      from: end - (number - n) * each,
      until: end - (number - n - 1) * each,
      rows: new Uint32Array(ROWS),
    }));
    for (const moment of this.moments) {
      const column = all[number - 1 - Math.floor((end - moment.until) / each)];
      if (!column) continue;
      for (const [op, rows] of moment.rows) {
        if (this.op === "" || this.op === op) rows.forEach((n, row) => (column.rows[row] += n));
      }
    }
    return all;
  }

  draw() {
    const { canvas } = this;
    const scale = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = HEIGHT * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    this.shown = this.columns();
    const most = Math.max(1, ...this.shown.map((column) => Math.max(...column.rows)));
    const high = (HEIGHT - BELOW) / ROWS;
    const wide = (width - LEFT) / this.shown.length;
    const base = colour("--heat");
    let all = 0;
    this.shown.forEach((column, x) => {
      column.rows.forEach((n, row) => {
        if (n === 0) return;
        all += n;
        pen.fillStyle = `rgba(${base}, ${0.15 + (0.85 * Math.log(n + 1)) / Math.log(most + 1)})`;
        pen.fillRect(LEFT + x * wide, (ROWS - 1 - row) * high, Math.max(1, wide - 1), high - 1);
      });
    });
    this.axes(pen, high, wide);
    if (this.cursor) {
      pen.strokeStyle = colour("--bad");
      pen.lineWidth = 2;
      pen.strokeRect(LEFT + this.cursor.x * wide, (ROWS - 1 - this.cursor.row) * high, wide, high);
    }
    canvas.setAttribute("aria-label", `Heat map of ${count(all)} operations. Arrow keys move, Enter shows the operations of a cell.`);
    this.say();
  }

  axes(pen, high, wide) {
    pen.fillStyle = colour("--dim");
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "bottom";
    for (let row = 0; row < ROWS; row += 4) {
      pen.textAlign = "right";
      pen.fillText(time(2 ** (row + FIRST)), LEFT - 6, (ROWS - row) * high);
    }
    pen.textBaseline = "top";
    const step = Math.max(1, Math.ceil(90 / wide));
    for (let x = 0; x < this.shown.length; x += step) {
      pen.textAlign = "left";
      pen.fillText(clock(this.shown[x].from), LEFT + x * wide, HEIGHT - BELOW + 3);
    }
  }

  cell() {
    const column = this.cursor && this.shown?.[this.cursor.x];
    if (!column) return null;
    const [low, up] = timesOf(this.cursor.row);
    return { from: column.from, until: column.until, low, high: up, count: column.rows[this.cursor.row] };
  }

  say() {
    const cell = this.cell();
    if (!cell) return;
    const until = Number.isFinite(cell.high) ? time(cell.high) : "longer";
    put(this.about, `${clock(cell.from)} to ${clock(cell.until)}, ${time(cell.low)} to ${until}: ${count(cell.count)} operations`);
  }

  point(event) {
    const place = this.canvas.getBoundingClientRect();
    const wide = (place.width - LEFT) / (this.shown?.length ?? 1);
    const x = Math.floor((event.clientX - place.left - LEFT) / wide);
    const row = ROWS - 1 - Math.floor((event.clientY - place.top) / ((HEIGHT - BELOW) / ROWS));
    if (x < 0 || x >= (this.shown?.length ?? 0) || row < 0 || row >= ROWS) return;
    this.cursor = { x, row };
    this.draw();
  }

  key(event) {
    const last = (this.shown?.length ?? 1) - 1;
    const cursor = this.cursor ?? { x: last + 1, row: 10 };
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pick();
    } else if (moves[event.key]) {
      event.preventDefault();
      const [x, row] = moves[event.key];
      const within = (value, most) => Math.min(most, Math.max(0, value));
      this.cursor = { x: within(cursor.x + x, last), row: within(cursor.row + row, ROWS - 1) };
      this.draw();
    }
  }

  pick() {
    const cell = this.cell();
    if (cell) this.choose(cell);
  }
}

/** The choices of operations, those that there were. */
export function offer(ops) {
  const select = at("heat-op");
  const known = new Set([...select.options].map((option) => option.value));
  for (const op of ops) if (!known.has(op)) select.append(el("option", { value: op }, op));
}
