// Requests to the daemon, through the command that serves the page.

const KEY = "poolhouse-token";

// The token is in the fragment of the URL. It moves into the storage of this tab, so that neither the
// history nor the address bar keeps it.
function token() {
  const given = /^#token=([0-9a-f]{64})$/.exec(location.hash);
  if (given) {
    sessionStorage.setItem(KEY, given[1]);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) ?? "";
}

const TOKEN = token();

/** A refusal. `kind` is `token`, `server`, or the reason of the daemon, such as `permission`. */
export class Refused extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

/** Whether there is a token at all. */
export function hasToken() {
  return TOKEN !== "";
}

/** Sends a method with arguments, an object or JSON text. Returns the answer and its text. */
export async function ask(method, args = {}) {
  let response;
  try {
    response = await fetch(`/v1/${method}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${TOKEN}` },
      body: typeof args === "string" ? args : JSON.stringify(args),
      signal: AbortSignal.timeout(20000),
    });
  } catch {
    throw new Refused("server", "the command poolhouse web has ended, or does not answer");
  }
  const text = await response.text();
  if (response.status === 401) throw new Refused("token", text);
  if (response.status !== 200) throw new Refused("server", text);
  const answer = JSON.parse(text);
  if (answer.error) {
    const reason = answer.error.reason;
    const kind = typeof reason === "string" ? reason : Object.keys(reason ?? {})[0];
    throw new Refused(kind ?? "daemon", `${answer.error.about}: ${words(kind ?? "failed")}`);
  }
  return { answer: answer.ok, text };
}

/** An identifier as words. */
export function words(name) {
  return String(name).replaceAll("_", " ");
}

/** The digits of a field. Numbers of 64 bits don't fit into those of scripts. */
export function digits(text, field) {
  return new RegExp(`"${field}":(\\d+)`).exec(text)?.[1] ?? "0";
}

/** The text of a field that is a list of pairs of numbers. */
export function pairs(text, field) {
  return new RegExp(`"${field}":(\\[(?:\\[\\d+,\\d+\\],?)*\\])`).exec(text)?.[1] ?? "[]";
}
