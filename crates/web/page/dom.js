// Elements and tables. Names are hostile text: they become text nodes, and never markup.

/** An element with properties and children; text children stay text. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** The element with an id. */
export function at(id) {
  return document.getElementById(id);
}

/** Puts a text into an element if it has another one. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// The cell of a row: text, or an element.
function fill(cell, value) {
  if (value instanceof Node) {
    if (cell.firstChild !== value || cell.childNodes.length !== 1) cell.replaceChildren(value);
  } else {
    put(cell, value === null || value === undefined ? "" : String(value));
  }
}

/**
 * A table whose rows stay the same elements from one update to the next, so that a reader keeps the
 * focus and the selection.
 *
 * A column is `{ title, cell(row), num, wide, key(row), help }`. `key` makes it sortable.
 */
export class Table {
  constructor(place, caption, columns, options = {}) {
    this.columns = columns;
    this.rows = new Map();
    this.all = [];
    this.sort = options.sort ?? null;
    this.falling = options.falling ?? true;
    this.none = options.none ?? "none";
    this.body = el("tbody");
    this.heads = columns.map((column) => this.head(column));
    const table = el(
      "table",
      {},
      el("caption", { className: "skip" }, caption),
      el("thead", {}, el("tr", {}, ...this.heads)),
      this.body,
    );
    place.replaceChildren(el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption }, table));
    this.mark();
  }

  head(column) {
    const inner = column.key ? el("button", { type: "button" }, column.title) : column.title;
    const cell = el("th", { scope: "col", className: column.num ? "num" : "", title: column.help ?? "" }, inner);
    if (column.key) inner.addEventListener("click", () => this.by(column));
    return cell;
  }

  by(column) {
    this.falling = this.sort === column.title ? !this.falling : Boolean(column.num);
    this.sort = column.title;
    this.mark();
    this.show(this.all);
  }

  mark() {
    this.columns.forEach((column, n) => {
      const order = this.falling ? "descending" : "ascending";
      if (column.key) this.heads[n].setAttribute("aria-sort", column.title === this.sort ? order : "none");
    });
  }

  sorted(rows) {
    const column = this.columns.find((one) => one.title === this.sort);
    if (!column?.key) return rows;
    const sign = this.falling ? -1 : 1;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const keyed = rows.map((row) => [column.key(row), row]);
    return keyed.sort((a, b) => sign * compare(a[0], b[0])).map(([, row]) => row);
  }

  /** Shows rows, each with its own `id`. */
  show(rows, most = Infinity) {
    this.all = rows;
    this.most = most;
    const shown = this.sorted(rows).slice(0, most);
    const keep = new Map();
    for (const row of shown) {
      const line = this.rows.get(row.id) ?? el("tr", {}, ...this.columns.map((column) => this.empty(column)));
      keep.set(row.id, line);
      this.columns.forEach((column, n) => {
        fill(line.cells[n], column.cell(row));
        if (column.look) line.cells[n].className = `${this.look(column)} ${column.look(row)}`;
      });
    }
    this.rows = keep;
    const lines = [...keep.values()];
    if (lines.length === 0) {
      lines.push(el("tr", {}, el("td", { colSpan: this.columns.length, className: "dim" }, this.none)));
    }
    const same = lines.length === this.body.rows.length && lines.every((line, n) => this.body.rows[n] === line);
    if (!same) this.body.replaceChildren(...lines);
  }

  look(column) {
    return `${column.num ? "num" : ""} ${column.wide ? "wide" : ""}`;
  }

  empty(column) {
    return el("td", { className: this.look(column) });
  }
}
