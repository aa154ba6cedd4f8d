// Numbers as text.

const SIZES = ["B", "K", "M", "G", "T", "P", "E"];

/** Bytes, in powers of 1,024, as `zpool list` has them. */
export function bytes(n) {
  let at = 0;
  let value = n ?? 0;
  while (value >= 1024 && at < SIZES.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 ? Math.round(value) : short(value)} ${SIZES[at]}`;
}

// Three digits, and never the form with an exponent.
function short(value) {
  return value >= 100 ? String(Math.round(value)) : value.toPrecision(3);
}

/** A count or rate. */
export function count(n) {
  if (!Number.isFinite(n)) return "-";
  if (n >= 1e6) return `${short(n / 1e6)} M`;
  if (n >= 100 || n === 0 || Number.isInteger(n)) return Math.round(n).toLocaleString("en-US");
  return n.toPrecision(2);
}

/** Nanoseconds. */
export function time(ns) {
  if (!Number.isFinite(ns)) return "-";
  if (ns >= 60e9) return span(ns / 1e9);
  if (ns >= 1e9) return `${short(ns / 1e9)} s`;
  if (ns >= 1e6) return `${short(ns / 1e6)} ms`;
  if (ns >= 1e3) return `${short(ns / 1e3)} µs`;
  return `${Math.round(ns)} ns`;
}

/** Seconds as hours and minutes. */
export function span(seconds) {
  const all = Math.max(0, Math.round(seconds));
  if (all >= 86400) return `${Math.floor(all / 86400)} d ${Math.floor((all % 86400) / 3600)} h`;
  if (all >= 3600) return `${Math.floor(all / 3600)} h ${Math.floor((all % 3600) / 60)} min`;
  if (all >= 60) return `${Math.floor(all / 60)} min ${all % 60} s`;
  return `${all} s`;
}

/** A part of a whole in per cent. */
export function percent(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(part === whole ? 0 : 1)} %` : "-";
}

/** The time of day of a moment, in milliseconds since 1970. */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

/** A date and time, from seconds since 1970. */
export function date(seconds) {
  const at = new Date(seconds * 1000);
  return `${at.toLocaleDateString("en-CA")} ${at.toLocaleTimeString("en-GB")}`;
}
