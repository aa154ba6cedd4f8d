// Charts over time, by uPlot.

import { el, put } from "./dom.js";

const HEIGHT = 180;
const POWERS = Array.from({ length: 63 }, (_, n) => 2 ** n);

/** A colour of the style sheet. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A chart with a caption that says the newest numbers, for readers who don't see the lines. */
export class Chart {
  /** `lines` are `{ name, title, colour }`; `form` prints a value, `binary` has steps for bytes. */
  constructor(place, title, lines, form, binary = false) {
    Object.assign(this, { title, lines, form, binary });
    this.caption = el("figcaption", {});
    this.plot = el("div", { className: "plot" });
    this.keys = lines.map((line) => el("span", {}));
    this.caption.append(el("b", {}, `${title}: `), ...this.keys);
    place.append(el("figure", {}, this.caption, this.plot));
    new ResizeObserver(() => this.fit()).observe(this.plot);
    this.draw();
  }

  draw() {
    this.chart?.destroy();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const values = (_, all) => all.map((value) => this.form(value));
    this.chart = new uPlot(
      {
        width: Math.max(100, this.plot.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false },
        scales: { y: { range: (_, __, top) => [0, top > 0 ? top * 1.05 : 1] } },
        series: [{}, ...this.lines.map((line) => ({ label: line.title, stroke: colour(line.colour), width: 1.5, spanGaps: false }))],
        axes: [axis, { ...axis, values, size: 64, ...(this.binary ? { incrs: POWERS } : {}) }],
        hooks: { setCursor: [(chart) => this.say(chart.cursor.idx)] },
      },
      this.data ?? [[], ...this.lines.map(() => [])],
      this.plot,
    );
    this.lines.forEach((line, n) => {
      this.keys[n].style.color = colour(line.colour);
    });
  }

  fit() {
    const width = Math.max(100, this.plot.clientWidth);
    if (this.chart.width !== width) this.chart.setSize({ width, height: HEIGHT });
  }

  show(data) {
    this.data = data;
    this.chart.setData(data);
    this.say(this.chart.cursor.idx);
  }

  // The values at the cursor, or else the newest.
  say(at) {
    const data = this.data ?? [];
    this.lines.forEach((line, n) => {
      const list = data[n + 1] ?? [];
      const value = list[at ?? list.length - 1];
      put(this.keys[n], `${line.title} ${Number.isFinite(value) ? this.form(value) : "-"}  `);
    });
  }
}
