// The daemon's numbers only grow. Rates are the differences of two readings.

/** How many events times have, by `[upper limit, count]`. */
export function events(times) {
  return times.buckets.reduce((sum, [, n]) => sum + n, 0);
}

/** What was added to times since an earlier reading. */
export function added(now, before) {
  const old = new Map(before?.buckets ?? []);
  const buckets = [];
  for (const [limit, n] of now.buckets) {
    const more = n - (old.get(limit) ?? 0);
    if (more > 0) buckets.push([limit, more]);
  }
  return { sum: Math.max(0, now.sum - (before?.sum ?? 0)), max: now.max, buckets };
}

/** Both together. */
export function joined(a, b) {
  const all = new Map(a.buckets);
  for (const [limit, n] of b.buckets) all.set(limit, (all.get(limit) ?? 0) + n);
  const buckets = [...all].sort((x, y) => x[0] - y[0]);
  return { sum: a.sum + b.sum, max: Math.max(a.max, b.max), buckets };
}

export const NOTHING = { sum: 0, max: 0, buckets: [] };

/** The time that a share of events did not exceed. */
export function quantile(times, share) {
  let left = events(times) * share;
  for (const [limit, n] of times.buckets) {
    left -= n;
    if (left <= 0) return limit;
  }
  return NaN;
}

/** The mean time. */
export function mean(times) {
  const n = events(times);
  return n > 0 ? times.sum / n : NaN;
}

/** Keeps the reading before, and gives it out if the same counters made both. */
export class Reader {
  constructor() {
    this.before = null;
  }

  /** The reading before `top`, and the seconds between both. `null`: there is none to compare with. */
  next(top) {
    const { before } = this;
    this.before = top;
    if (!before || before.process !== top.process || before.run !== top.run) return null;
    const seconds = (top.clock_ns - before.clock_ns) / 1e9;
    return seconds > 0 ? { before, seconds } : null;
  }
}

/** Numbers of the past hour, by series, one for each second or so. */
export class Past {
  constructor(names, most = 3600) {
    this.most = most;
    this.at = [];
    this.series = Object.fromEntries(names.map((name) => [name, []]));
  }

  add(ms, values) {
    this.at.push(ms / 1000);
    for (const [name, list] of Object.entries(this.series)) {
      const value = values[name];
      list.push(Number.isFinite(value) ? value : null);
    }
    if (this.at.length > this.most) {
      this.at.shift();
      Object.values(this.series).forEach((list) => list.shift());
    }
  }

  /** The last so many seconds of some series, as uPlot wants them. */
  last(seconds, names) {
    const from = Date.now() / 1000 - seconds;
    let first = this.at.findIndex((at) => at >= from);
    if (first < 0) first = this.at.length;
    return [this.at.slice(first), ...names.map((name) => this.series[name].slice(first))];
  }

  /** The newest value of a series. */
  newest(name) {
    return this.series[name].at(-1) ?? NaN;
  }
}
