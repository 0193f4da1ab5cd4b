/**
 * Sends an operation until its outcome is known or time is up. For browsers and Node.js; needs nothing else.
 *
 * One key and the same bytes for every attempt: an Intent has both before anything is sent. An attempt without an
 * answer proves nothing, so it is made again. And what is known never turns worse into better: once an attempt may have
 * taken effect, only a success, or an answer that the server marks as the recorded one, tells what became of it.
 *
 * The rules are those of twicesafe's Python client, question by question. Durations are in milliseconds.
 */

// --- keys -----------------------------------------------------------------------------------------------------------

const MAX_KEY_LENGTH = 255;

/** A key for a new intent. Make it when the page or the cart is made, never when it is sent. */
export function newKey() {
  const source = globalThis.crypto;
  // Pages without TLS have no randomUUID.
  if (typeof source?.randomUUID === "function") return source.randomUUID();
  if (typeof source?.getRandomValues !== "function") {
    throw new Error("nothing here makes keys that nobody else has: set globalThis.crypto, or give each intent its key");
  }
  const bytes = source.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** The message never repeats the key. */
function checkedKey(key) {
  if (typeof key !== "string" || !/^[!-~](?:[ -~]*[!-~])?$/.test(key) || key.length > MAX_KEY_LENGTH) {
    throw new TypeError(`a key is 1 to ${MAX_KEY_LENGTH} printable ASCII characters, with no blank at either end`);
  }
  return key;
}

// --- intents --------------------------------------------------------------------------------------------------------

const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS", "QUERY", "PROPFIND", "REPORT", "SEARCH"]);
const CONTRACTS = new Set(["safe", "idempotent", "conditional", "keyed", "never"]);
const FORM = "application/x-www-form-urlencoded";

/** What is to happen once, with its key and its bytes. Make it where the wish arises; nothing in it changes. */
export class Intent {
  #body;

  /**
   * An intent with a new key, or with `key` where the cart already has one. At most one of `json`, `form` and `body`.
   * The contract is "keyed" unless the method is safe; say "never" where the server ignores keys.
   */
  static create(method, url, { json, form, body, headers, key = newKey(), contract } = {}) {
    if ([json, form, body].filter((given) => given !== undefined).length > 1) {
      throw new TypeError("give an intent one body: json, form or body");
    }
    const lines = new Headers(headers);
    const kind = json !== undefined ? "application/json" : form !== undefined ? FORM : null;
    if (kind !== null && !lines.has("content-type")) lines.set("content-type", kind);
    if (json !== undefined) body = jsonOf(json);
    if (form !== undefined) body = new URLSearchParams(form).toString();
    return new Intent({ method, url, headers: Object.fromEntries(lines), body: bytesOf(body), key, contract });
  }

  /** The intent that a Request amounts to: one with files, say. It is read to its end, and not sent by this. */
  static async from(request, { key = newKey(), contract } = {}) {
    const { method, url, headers } = request;
    const body = new Uint8Array(await request.arrayBuffer());
    return new Intent({ method, url, headers: Object.fromEntries(headers), body, key, contract });
  }

  /** The intent that JSON.stringify() wrote down. */
  static revive({ body, ...written }) {
    return new Intent({ ...written, body: Uint8Array.from(body, (letter) => letter.charCodeAt(0)) });
  }

  constructor({ method, url, headers, body, key, contract }) {
    this.method = method.toUpperCase();
    this.url = absolute(url);
    this.headers = Object.freeze({ ...headers });
    this.key = checkedKey(key);
    this.contract = contract ?? (SAFE_METHODS.has(this.method) ? "safe" : "keyed");
    if (!CONTRACTS.has(this.contract)) throw new TypeError(`a contract is one of ${[...CONTRACTS].join(", ")}`);
    this.#body = body;
    Object.freeze(this);
  }

  /** The bytes to send, as a copy. */
  get body() {
    return this.#body.slice();
  }

  toJSON() {
    const { method, url, headers, key, contract } = this;
    return { method, url, headers, body: text(this.#body), key, contract };
  }
}

function jsonOf(json) {
  const text = JSON.stringify(json);
  // Of a function, say: it would go out as nothing, and be called JSON.
  if (text === undefined) throw new TypeError(`JSON has no ${typeof json}`);
  return text;
}

function bytesOf(body) {
  if (body === undefined || body === null) return new Uint8Array();
  if (typeof body === "string") return new TextEncoder().encode(body);
  if (body instanceof ArrayBuffer) return new Uint8Array(body.slice(0));
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength).slice();
  throw new TypeError("a body is text or bytes; make an intent of anything else by Intent.from(new Request(...))");
}

/** One letter for each byte, so that it can be written down as JSON. */
const text = (bytes) => Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");

/** Where it goes does not depend on where the page is when it is sent. */
function absolute(url) {
  const base = globalThis.document?.baseURI ?? globalThis.location?.href;
  let address;
  try {
    address = new URL(url, base);
  } catch {
    // Less what may be somebody's: a user, a password, a query.
    const shown = `${url}`.replace(/[?#].*$/s, "").replace(/^.*@/s, "");
    throw new TypeError(`${shown} is not a whole address${base ? "" : ", and there is no page here that it could begin at"}`);
  }
  const { href, protocol, username, password } = address;
  if (protocol !== "http:" && protocol !== "https:") throw new TypeError(`no intent can be sent by ${protocol}`);
  // fetch() refuses it as well, and its error shows them.
  if (username || password) throw new TypeError("an address holds no user and no password here: give them in a header");
  return href;
}

// --- limits ---------------------------------------------------------------------------------------------------------

/** Limits of one operation's attempts, all of them in force at once. */
export const DEFAULT_POLICY = Object.freeze({
  attempts: 4,
  inProgress: 30, // answers "in progress" are no failures; this many are waited out
  deadline: 30_000, // for the whole operation, waits included
  attemptTimeout: 10_000, // of each attempt, its body included; clipped to what is left
  firstDelay: 500,
  longestDelay: 10_000,
  work: "interactive", // or "background": whose retry budget it is
  header: "Idempotency-Key",
  remembers: null, // for how long the server knows a key, from when it was first sent; null where nobody says
});

const SHORTEST_ATTEMPT = 50; // with less left, a further attempt would only make a known outcome unknown
const MARGIN = 60_000; // before a server forgets a key, it is sent no more: it has to arrive while it is known
const LONGEST_TIMER = 2 ** 31 - 1; // a longer one rings at once

function checkedPolicy(changes = {}) {
  const policy = { ...DEFAULT_POLICY, ...changes };
  for (const name of Object.keys(policy)) {
    if (!Object.hasOwn(DEFAULT_POLICY, name)) throw new TypeError(`a policy has no ${name}`);
  }
  for (const [name, least] of [
    ["attempts", 1],
    ["inProgress", 0],
  ]) {
    if (!Number.isInteger(policy[name]) || policy[name] < least) {
      throw new RangeError(`${name} must be a whole number of ${least} or more`);
    }
  }
  for (const name of ["deadline", "attemptTimeout", "firstDelay", "longestDelay"]) {
    if (typeof policy[name] !== "number" || !(policy[name] > 0 && policy[name] <= LONGEST_TIMER)) {
      throw new RangeError(`${name} must be milliseconds above 0, up to ${LONGEST_TIMER}`);
    }
  }
  if (policy.remembers !== null && !(typeof policy.remembers === "number" && policy.remembers > 0)) {
    throw new RangeError("remembers must be milliseconds above 0, or null");
  }
  if (!Object.hasOwn(SIZES, policy.work)) throw new TypeError(`work must be one of ${Object.keys(SIZES).join(", ")}`);
  return policy;
}

/** In retries: what a budget holds when it is full, what each success pays, and what each second brings. */
const SIZES = {
  interactive: { full: 20, perSuccess: 0.1, perSecond: 0.02 },
  background: { full: 10, perSuccess: 0.05, perSecond: 0.01 },
};
const MANY = 1024; // origins after which budgets that are full, and so say nothing, are forgotten

/**
 * Retry budgets by origin and class of work. A retry costs, a success pays a tenth of one back: while a server answers,
 * retries are a tenth of what it is sent, and when it stops answering, they stop too.
 */
export class Budgets {
  #buckets = new Map();
  #sizes;

  constructor(sizes = {}) {
    this.#sizes = { ...SIZES, ...sizes };
    for (const { full, perSuccess, perSecond } of Object.values(this.#sizes)) {
      if (![full, perSuccess, perSecond].every((number) => number >= 0)) {
        throw new RangeError("a retry budget's numbers must be 0 or more");
      }
    }
  }

  of(origin, work, now) {
    const name = `${work} ${origin}`;
    let bucket = this.#buckets.get(name);
    if (bucket === undefined) {
      if (this.#buckets.size >= MANY) this.#forget(now);
      bucket = new Bucket(this.#sizes[work], now);
      this.#buckets.set(name, bucket);
    }
    return bucket;
  }

  #forget(now) {
    for (const [name, bucket] of this.#buckets) if (bucket.left(now) >= bucket.full) this.#buckets.delete(name);
  }
}

class Bucket {
  #left;
  #size;
  #then;

  constructor(size, now) {
    this.#size = size;
    this.#left = size.full;
    this.#then = now;
  }

  get full() {
    return this.#size.full;
  }

  /** Pay for one retry. False, and nothing is paid, where it cannot be afforded. */
  take(cost, now) {
    if (this.left(now) < cost) return false;
    this.#left -= cost;
    return true;
  }

  /** An attempt succeeded: the server has some strength to spare. Returns what is left now. */
  success(now) {
    this.#left = Math.min(this.#size.full, this.left(now) + this.#size.perSuccess);
    return this.#left;
  }

  left(now) {
    if (now > this.#then) {
      this.#left = Math.min(this.#size.full, this.#left + ((now - this.#then) / 1000) * this.#size.perSecond);
      this.#then = now;
    }
    return this.#left;
  }
}

const OF_THIS_PAGE = new Budgets();

// --- what an answer means -------------------------------------------------------------------------------------------

// Whether to ask again, and what is known of the effect, are apart: a 503 may be worth another attempt and still not
// say whether the one before it was done.
const NO = "no";
const YES = "yes";
const IN_PROGRESS = "in progress"; // another attempt is at work: wait for it

const DONE = "done";
const NOT_DONE = "not done"; // this attempt did nothing; an earlier one may have
const NOT_THIS_TIME = "not this time"; // this attempt did nothing, and what its key names may well be done
const NEVER = "never"; // the recorded answer to all attempts: it was not done
const NOTHING = "nothing";

const TRANSIENT = new Set([408, 425, 429, 500, 502, 503, 504]); // reviewed: each is used for a condition that passes
const NOT_IMPLEMENTED = new Set([501, 505]); // given instead of working
const UNMENDED_BY_REPEATING = new Set([401, 403, 404, 422]); // however the server marks them
const ELSEWHERE = new Set([307, 308]); // not done here, by definition

const KEY_REUSED = "key-reused";
const KEY_REUSED_TITLE = "idempotency-key is already used"; // where a server names its problem types otherwise
const JUDGED_BODY = 64 * 1024;
const NO_PROBLEM = { kind: "", retryable: null, safeNewKey: null };

/** `reason` is for people, and holds nothing of the answer but its status. */
const judgment = (again, says, reason, replayed = false) => ({ again, says, reason: String(reason), replayed });

/** Judge a whole answer, {status, headers, body}. */
function judge({ status, headers, body }, contract) {
  const replayed = headers.get("idempotent-replayed")?.split(",")[0].trim().toLowerCase() === "true";
  if (status < 400 && !ELSEWHERE.has(status)) {
    if (replayed) return judgment(NO, DONE, `${status} replayed`, true);
    const says = isDone(status, contract) ? DONE : NOTHING;
    return judgment(NO, says, status === 0 ? "a redirect that the browser hides" : status);
  }
  if (replayed) return judgment(NO, NEVER, `${status} replayed`, true);
  const problem = problemIn(headers, body);
  if (status === 409) return judgeConflict(headers, problem, contract === "keyed");
  if (problem.kind === "handler-failed") return judgment(NO, NEVER, `${status} recorded`);
  const refused = status < 500 || insteadOfWorking(status, headers, problem);
  const marked = problem.retryable !== null && !UNMENDED_BY_REPEATING.has(status);
  const passes = marked ? problem.retryable : TRANSIENT.has(status);
  const reason = problem.kind === KEY_REUSED ? `${status} key reused` : status;
  return judgment(passes ? YES : NO, refused ? refusal(problem) : NOTHING, reason);
}

/** A redirect to a log-in page, say, does not tell that it is done. */
function isDone(status, contract) {
  if (status === 303) return contract === "keyed" || contract === "never";
  if (status === 304) return contract === "safe" || contract === "conditional";
  return status >= 200 && status < 300;
}

/** What a refusal tells of the operation. That the key was used for another request proves that it was used. */
function refusal({ kind, safeNewKey }) {
  return safeNewKey === false || kind === KEY_REUSED ? NOT_THIS_TIME : NOT_DONE;
}

/** 409 is either about the first attempt, or about the state of the resource and final. */
function judgeConflict(headers, problem, keyed) {
  const { kind, retryable } = problem;
  if (kind === "outcome-unknown") return judgment(NO, NOTHING, "409 outcome unknown");
  // Of a server that gives the first answer to nobody else: Location is where its result is.
  if (kind === "already-done" && keyed) return judgment(NO, DONE, "409 already done", true);
  if (retryable !== false && (kind === "in-progress" || headers.has("retry-after"))) {
    if (keyed) return judgment(IN_PROGRESS, NOTHING, "409 in progress");
    return judgment(YES, NOT_DONE, "409 asked to wait");
  }
  return judgment(retryable ? YES : NO, refusal(problem), "409");
}

/**
 * A 503 without a time to come back may be a gateway's, whose connection to the server broke at any moment. And so may
 * one with it, where a gateway was on the way and no problem document says who speaks: Varnish's own errors ask to wait.
 */
function insteadOfWorking(status, headers, { kind }) {
  if (NOT_IMPLEMENTED.has(status) || kind === "store-unavailable" || kind === "store-misconfigured") return true;
  if (status !== 503 || kind === "commit-unknown" || !headers.has("retry-after")) return false;
  return kind !== "" || !headers.has("via");
}

/** The problem document, read with suspicion: whatever is not one is no problem. */
function problemIn(headers, body) {
  const mediaType = (headers.get("content-type") ?? "").split(";")[0].trim().toLowerCase();
  if (mediaType !== "application/problem+json" && mediaType !== "application/json") return NO_PROBLEM;
  if (body.length > JUDGED_BODY) return NO_PROBLEM;
  try {
    const document = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
    const flag = (member) => (typeof member === "boolean" ? member : null);
    return {
      kind: kindOf(document.type, document.title),
      retryable: flag(document.retryable),
      safeNewKey: flag(document.safe_new_key),
    };
  } catch {
    return NO_PROBLEM;
  }
}

/** The last part of a problem's type. */
function kindOf(type, title) {
  if (typeof title === "string" && title.trim().toLowerCase() === KEY_REUSED_TITLE) return KEY_REUSED;
  if (typeof type !== "string") return "";
  let end = type.length;
  while (type[end - 1] === "/") end -= 1;
  return type.slice(0, end).split(/[/:#]/).at(-1).toLowerCase();
}

// --- Retry-After ----------------------------------------------------------------------------------------------------

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DATES = [
  /^(?:[a-z]{3,9}, +)?(?<day>\d{1,2})[ -](?<month>[a-z]{3})[ -](?<year>\d{4}|\d\d) (?<time>[\d:]{8})(?: gmt| utc)?$/i,
  /^[a-z]{3} (?<month>[a-z]{3}) +(?<day>\d{1,2}) (?<time>[\d:]{8}) (?<year>\d{4})$/i,
];

const WAITS = /(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,[^,]*|[^,]+/gi; // a date has a comma of its own

/**
 * Milliseconds that the server asks to be left alone, or null. Of several values the longest counts. A date is measured
 * from the answer's own Date, so that a clock that is off by an hour moves nothing; `wall`, the caller's calendar,
 * stands in where there is none, or none that a page of another origin may read.
 */
function retryAfter(headers, wall) {
  const values = (headers.get("retry-after") ?? "").match(WAITS) ?? [];
  const waits = values.map((value) => wait(value.trim(), headers, wall)).filter((found) => found !== null);
  return waits.length === 0 ? null : Math.max(...waits);
}

function wait(value, headers, wall) {
  // The standard has whole seconds only; fractions are sent all the same, and their meaning is plain.
  if (/^\d+(?:\.\d+)?$/.test(value)) return Number(value) * 1000;
  const until = httpDate(value);
  return until === null ? null : Math.max(0, until - (httpDate(headers.get("date") ?? "") ?? wall));
}

/** An HTTP date, in any of its three forms, as milliseconds since the epoch. */
function httpDate(value) {
  const found = DATES.map((form) => form.exec(value)).find((match) => match !== null)?.groups;
  if (found === undefined) return null;
  const [day, month] = [Number(found.day), MONTHS.indexOf(found.month.toLowerCase())];
  const [hour, minute, second] = found.time.split(":").map(Number);
  const short = found.year.length === 2 ? (Number(found.year) > 68 ? 1900 : 2000) : 0;
  const date = new Date(Date.UTC(short + Number(found.year), month, day, hour, minute, second));
  // A 32nd of October, or a time of something else than hours, minutes and seconds, would be another day or none.
  return month >= 0 && date.getUTCDate() === day ? date.getTime() : null;
}

// --- one operation, from its first attempt to its outcome -----------------------------------------------------------

/**
 * The decisions, as a generator: it yields {number, timeout} to be sent, or {delay} to be waited, and is given what
 * happened. Each attempt that ends is added to `trail`.
 *
 * The order of the questions after each attempt: is the answer final; may the operation be repeated; are attempts left;
 * does the wait fit the deadline; does the server still know the key then; does the origin's budget allow it. Whatever
 * says no first ends the call at once.
 */
function* attempts(call, budget, now, trail) {
  const { contract, policy, until, knownUntil } = call;
  if (now >= knownUntil) return conclude(call, {}, UNSENT, "forgotten", [], true);
  const began = now;
  let failures = 0;
  let waits = 0;
  let perhapsDone = call.sentBefore;
  for (let number = 1; ; number += 1) {
    const started = now;
    const event = yield { number, timeout: Math.min(policy.attemptTimeout, until - now) };
    now = event.now;
    const judged = event.failure ? judgeFailure(event) : judge(event, contract);
    if (judged.again === IN_PROGRESS) waits += 1;
    else failures += 1;
    let { delay, stop } = plan(call, event, judged, failures, waits, budget);
    trail.push(
      Object.freeze({
        number,
        began: started - began,
        took: now - started,
        sent: event.response ? "yes" : "maybe",
        status: event.response?.status || null,
        failure: event.failure ?? null,
        reason: judged.reason,
        delay,
        stop,
        deadlineLeft: until - now,
        budgetLeft: judged.says === DONE ? budget.success(now) : budget.left(now),
      }),
    );
    if (delay !== null) {
      const woke = yield { number, delay };
      if (until - woke >= SHORTEST_ATTEMPT / 2 && woke < knownUntil) {
        now = woke;
        perhapsDone ||= judged.says === NOTHING;
        continue;
      }
      stop = woke < knownUntil ? "deadline" : "forgotten"; // slept longer than was asked for
    }
    return conclude(call, event, judged, stop, [...trail], perhapsDone);
  }
}

const UNSENT = judgment(NO, NOTHING, "not sent");

/** No whole answer came. fetch() never proves that nothing was sent. */
function judgeFailure({ failure, response }) {
  return judgment(YES, NOTHING, response ? `${failure} in the body of a ${response.status}` : failure);
}

/** `delay` before the next attempt, or `stop`: why there is none. */
function plan({ contract, policy, until, knownUntil }, event, judged, failures, waits, budget) {
  const no = (stop) => ({ delay: null, stop });
  if (judged.again === NO) return no("answered");
  if (contract === "never") return no("not repeatable");
  const inProgress = judged.again === IN_PROGRESS;
  if (inProgress ? waits > policy.inProgress : failures >= policy.attempts) return no("attempts");
  // Capped before drawing, so that the jitter stays full however often it failed.
  const nth = inProgress ? waits : failures;
  const window = Math.min(policy.longestDelay, policy.firstDelay * 2 ** Math.min(nth - 1, 64));
  const longest = until - event.now - SHORTEST_ATTEMPT;
  const asked = event.failure ? null : retryAfter(event.headers, event.wall);
  const delay = asked === null ? event.fraction * window : above(asked, window, longest, event.fraction, policy);
  if (delay > longest) return no("deadline");
  if (event.now + delay >= knownUntil) return no("forgotten");
  // To ask after an attempt that is at work is no load worth mentioning. One that may still be at work, and was given
  // up, is worth two refusals.
  const cost = inProgress ? 0 : judged.says === NOTHING ? 2 : 1;
  return budget.take(cost, event.now) ? { delay, stop: null } : no("budget");
}

/** What the server asked for is a floor. The jitter goes above it, or all who were told the same come back at once. */
function above(asked, window, longest, fraction, { longestDelay }) {
  if (asked > longest) return asked;
  const spread = Math.min(Math.max(window, asked / 2), longestDelay, longest - asked);
  return Math.max(asked, Math.min(asked + fraction * spread, longest));
}

/** The three outcomes. */
function conclude({ contract, key }, event, judged, stop, trail, perhapsDone) {
  const refused = judged.says === NEVER || (judged.says === NOT_DONE && !perhapsDone);
  let kind = "unknown";
  if (judged.says === DONE) kind = "succeeded";
  else if (refused || (contract === "safe" && !event.failure)) kind = "rejected";
  return Object.freeze({
    kind,
    key,
    attempts: Object.freeze(trail),
    replayed: judged.replayed,
    stop,
    sent: trail.some(({ sent }) => sent === "yes") ? "yes" : "maybe",
    response: event.response ?? null,
    error: event.error ?? null,
  });
}

// --- sending --------------------------------------------------------------------------------------------------------

const WORLD = {
  fetch: (...request) => globalThis.fetch(...request),
  clock: steady(),
  wall: () => Date.now(),
  random: () => Math.random(),
  sleep,
  after: ring,
  observe: () => {},
  budgets: OF_THIS_PAGE,
  signal: undefined,
  init: {},
  policy: {},
  sentBefore: null,
};

/**
 * A clock that only goes forward, and counts the time in which the machine slept. performance.now() may not: a laptop
 * that was opened in the morning would take the deadline, and what the server remembers, to be as they were.
 */
function steady() {
  const ahead = () => Date.now() - performance.now();
  const start = ahead();
  let slept = 0;
  return () => {
    slept = Math.max(slept, ahead() - start);
    return performance.now() + slept;
  };
}

/**
 * Send `intent` until its outcome is known or time is up. Rejects only with what is no outcome: the reason of
 * `settings.signal`, a TypeError where it can never be sent, an error of `settings.observe`. The same intent can be
 * sent again after each of them.
 */
export async function send(intent, settings = {}) {
  const unknown = Object.keys(settings).find((name) => !Object.hasOwn(WORLD, name));
  if (unknown !== undefined) throw new TypeError(`there is no setting ${unknown}`);
  const world = { ...WORLD, ...settings };
  const policy = checkedPolicy(world.policy);
  const call = callOf(intent, policy, world);
  const { origin } = new URL(intent.url);
  call.announce = announcer(origin, policy, world.random);
  const now = world.clock();
  call.until = now + policy.deadline;
  call.knownUntil = call.window === Infinity ? Infinity : now + call.window - ageOf(world.sentBefore, world.wall());
  const trail = [];
  const decisions = attempts(call, world.budgets.of(origin, policy.work, now), now, trail);
  try {
    world.signal?.throwIfAborted();
    let step = decisions.next();
    while (!step.done) {
      const happened = "delay" in step.value ? pause(step.value, world) : attempt(call, step.value, world);
      step = decisions.next(await happened);
    }
    return step.value;
  } catch (error) {
    sign(error, { key: call.key, attempts: trail });
    throw error;
  }
}

const reports = new WeakMap();

/** The key, and the attempts that had ended, of the operation that was broken off by `error`. */
export const reportOf = (error) => reports.get(error);

function sign(error, report) {
  if (typeof error === "object" && error !== null) reports.set(error, report);
}

/** The operation as every attempt sends it. TypeError where no attempt ever could. */
function callOf(intent, policy, { init, sentBefore }) {
  const carrier = policy.header.toLowerCase();
  const headers = { ...Object.fromEntries(new Headers(init.headers)), ...intent.headers };
  if (carrier in headers) throw new TypeError(`the intent's key goes into ${policy.header}: give it as its key`);
  const key = intent.contract === "safe" ? null : intent.key;
  if (key !== null) headers[carrier] = key;
  const body = intent.body;
  const request = {
    cache: "no-store",
    ...init,
    method: intent.method,
    headers,
    body: body.length > 0 ? body : undefined,
    // fetch() would carry the key along to another origin, and hide that what is answered there is another question.
    redirect: "manual",
  };
  const { headers: sent } = new Request(intent.url, request);
  // Both leave headers out without a word, and then each attempt would be another operation.
  if (key !== null && (request.mode === "no-cors" || sent.get(carrier) !== key)) {
    throw new TypeError(`${policy.header} would not be sent: by the mode "no-cors", or for a name of the browser's own`);
  }
  const { url, contract } = intent;
  const window = contract === "keyed" ? windowOf(policy.remembers) : Infinity;
  return { contract, key, policy, url, request, window, sentBefore: sentBefore !== null };
}

/** How long ago that was. A clock that is behind it was set back, and nobody knows by how much. */
function ageOf(sentBefore, wall) {
  if (sentBefore === null) return 0;
  return wall < sentBefore - CORRECTED ? Infinity : Math.max(0, wall - sentBefore);
}

/** For how long after it was first sent a key may be sent again. */
function windowOf(remembers) {
  return remembers === null ? Infinity : remembers - Math.min(remembers / 10, MARGIN);
}

/** One attempt, and what came of it. */
async function attempt(call, { number, timeout }, world) {
  const { signal, observe } = world;
  observe({ type: "sending", number });
  signal?.throwIfAborted();
  const limit = new AbortController();
  const stopped = new Promise((_, reject) => {
    limit.signal.addEventListener("abort", () => reject(limit.signal.reason));
  });
  const cancel = world.after(timeout, () => limit.abort(new DOMException("no time is left", "TimeoutError")));
  const giveUp = () => limit.abort(signal.reason);
  signal?.addEventListener("abort", giveUp);
  const got = {};
  try {
    const headers = { ...call.request.headers, ...call.announce(number) };
    const request = { ...call.request, headers, signal: limit.signal };
    await Promise.race([stopped, exchange(world.fetch, call.url, request, got)]);
  } catch (error) {
    signal?.throwIfAborted();
    got.error = error;
    got.failure = limit.signal.aborted ? "timeout" : "network";
  } finally {
    cancel();
    signal?.removeEventListener("abort", giveUp);
  }
  const { status, headers } = got.response ?? {};
  const { failure } = got;
  observe(failure ? { type: "failed", number, failure } : { type: "answered", number, status, headers });
  return { ...got, status, headers, now: world.clock(), fraction: world.random(), wall: world.wall() };
}

/** Fill `got` with the response as soon as its head is there, and with its body when that is. */
async function exchange(fetch, url, request, got) {
  const response = await fetch(url, request);
  got.response = response;
  // Read here, where the deadline holds and a break still is a failure; the caller reads what is left of the two.
  got.body = new Uint8Array(await response.clone().arrayBuffer());
}

/** What each attempt says of itself, for logs and traces. Most are the first and the last, and say no more. */
function announcer(origin, { attempts: limit }, random) {
  const here = globalThis.location?.origin;
  // Other origins would have to allow these headers before anything could be sent.
  if (here !== undefined && here !== origin) return () => ({});
  const operation = Math.floor(random() * 2 ** 52).toString(16);
  return (number) => ({
    "twicesafe-attempt": String(number),
    ...(number > 1 && { "twicesafe-attempt-limit": String(limit), "twicesafe-operation": operation }),
  });
}

async function pause({ number, delay }, { signal, observe, sleep, clock }) {
  observe({ type: "waiting", number, delay });
  signal?.throwIfAborted();
  await sleep(delay, signal);
  signal?.throwIfAborted();
  return clock();
}

/** Call `fire` after so many milliseconds. Returns what calls that off. */
function ring(milliseconds, fire) {
  const timer = setTimeout(fire, milliseconds);
  return () => clearTimeout(timer);
}

function sleep(milliseconds, signal) {
  return new Promise((wake, reject) => {
    const giveUp = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", giveUp);
      wake();
    }, milliseconds);
    signal?.addEventListener("abort", giveUp);
  });
}

// --- kept until the outcome is known --------------------------------------------------------------------------------

/** Another intent is under way by the same name: its outcome has to be known first. `kept` is that intent. */
export class IntentConflictError extends Error {
  constructor(name, kept) {
    super(`${name} is under way with other bytes, and its outcome is not known: send those again, or forget it`);
    this.name = "IntentConflictError";
    this.kept = kept;
  }
}

/** A clock that is behind by less was corrected, as clocks are all the time. */
const CORRECTED = 1000;
const DAY = 24 * 60 * 60 * 1000;
const SECRETS = ["authorization", "cookie", "proxy-authorization"];

/**
 * Intents by name (that of a cart, say), each with one key and, once it is reserved, with its bytes, until its outcome
 * is known. They outlive a reload in `storage`, the tab's sessionStorage where none is given.
 *
 * Where nothing can be stored, because the storage is denied or full, they are kept in memory until the page is left,
 * and `durable` is false. Nothing is sent again after the server's memory of keys, `remembers`: the day that it is by
 * twicesafe's own default, or whatever yours has.
 */
export class IntentStore {
  // name -> what this page knows: {key, intent, sentBefore, seen, steadyAt, done}. `seen` is the latest time at which
  // it was sent, `steadyAt` the first by the steady clock of the page that sent it.
  #held = new Map();
  #underway = new Map(); // name -> the promise of its outcome
  #storage;
  #prefix;
  #remembers;
  #durable;

  constructor(storage = storageOfTheTab(), { prefix = "twicesafe.", remembers = DAY } = {}) {
    this.#storage = storage;
    this.#prefix = prefix;
    this.#remembers = remembers;
    this.#durable = storage !== null;
  }

  /** Whether all that was to be kept so far would outlive a reload. */
  get durable() {
    return this.#durable;
  }

  /** The key of this name, made when it is first asked for: when the page or the cart is made. */
  key(name) {
    const found = this.#find(name) ?? this.#keep(name, { key: newKey(), intent: null });
    this.#held.set(name, found);
    return found.key;
  }

  /** The intent under this name whose outcome is not known, after a reload say, or null. */
  kept(name) {
    const found = this.#find(name);
    return found && !found.done ? found.intent : null;
  }

  /**
   * The intent under this name: the one that is kept, if there is one, or a new one with the name's key. `options` as
   * for Intent.create(). IntentConflictError where other bytes are under way.
   */
  reserve(name, method, url, options = {}) {
    const found = this.#find(name);
    const wanted = Intent.create(method, url, { key: found?.key, ...options });
    if (SECRETS.some((header) => header in wanted.headers)) {
      throw new TypeError("credentials are not written down with an intent: give them to send(), in init.headers");
    }
    if (!found?.intent) {
      const before = found?.key === wanted.key ? found : {};
      return this.#keep(name, { ...before, key: wanted.key, intent: wanted }).intent;
    }
    if (isSame(found.intent, wanted)) {
      this.#held.set(name, found);
      return found.intent;
    }
    if (!found.done) throw new IntentConflictError(name, found.intent);
    // The one before is done and over. This is another.
    const other = Intent.create(method, url, options);
    return this.#keep(name, { key: other.key, intent: other }).intent;
  }

  /**
   * Send what is reserved under this name, and forget it when its outcome is known. Whoever asks while it is under way
   * gets the same outcome. What succeeded is remembered by this page all the same, so that a click that came too late
   * sends the same key again.
   */
  send(name, settings = {}) {
    const underway = this.#underway.get(name);
    if (underway !== undefined) return underway;
    const begun = this.#send(name, settings).finally(() => {
      if (this.#underway.get(name) === begun) this.#underway.delete(name);
    });
    this.#underway.set(name, begun);
    return begun;
  }

  async #send(name, settings) {
    const found = this.#find(name);
    if (!found?.intent) throw new TypeError(`nothing is reserved as ${name}`);
    const own = this.#held.get(name)?.intent ?? found.intent;
    // Another tab has forgotten this page's intent, and has one of its own under way.
    if (!isSame(own, found.intent)) throw new IntentConflictError(name, found.intent);
    const [now, steady] = [(settings.wall ?? WORLD.wall)(), (settings.clock ?? WORLD.clock)()];
    const isFirst = (found.sentBefore ?? null) === null;
    const sending = {
      ...found,
      sentBefore: found.sentBefore ?? now,
      seen: Math.max(found.seen ?? now, now),
      steadyAt: isFirst ? steady : found.steadyAt,
    };
    // Written down before it is sent: a page that is left now may have done it.
    if (!found.done) this.#keep(name, sending);
    const policy = { remembers: this.#remembers, ...settings.policy };
    const outcome = await send(found.intent, { ...settings, policy, sentBefore: firstSent(found, now, steady) });
    // Unless the name has been forgotten meanwhile, and stands for something else.
    if (outcome.kind !== "unknown" && this.#find(name)?.key === found.key) {
      this.forget(name);
      if (outcome.kind === "succeeded") this.#held.set(name, { ...sending, done: true });
    }
    return outcome;
  }

  /** Whatever became of it, by what the caller has learned elsewhere. The next one under this name has a new key. */
  forget(name) {
    this.#held.delete(name);
    this.#underway.delete(name);
    this.#attempt((storage) => storage.removeItem(this.#prefix + name));
  }

  #find(name) {
    const [stored, held] = [this.#read(name), this.#held.get(name)];
    if (!stored || !held) return held ?? stored;
    // What is under way, in whatever tab, comes first; and a page keeps the key that it was made with.
    if (stored.key !== held.key) return stored.intent ? stored : held;
    const sentBefore = held.sentBefore ?? stored.sentBefore;
    const seen = Math.max(held.seen ?? 0, stored.seen ?? 0);
    return { ...held, intent: held.intent ?? stored.intent, sentBefore, seen };
  }

  #keep(name, { key, intent, sentBefore = null, seen, steadyAt }) {
    const entry = { key, intent, sentBefore, seen: sentBefore === null ? undefined : seen };
    this.#held.set(name, { ...entry, steadyAt, done: false });
    const write = (what) =>
      this.#attempt((storage) => {
        // Room for the time at which it is sent: it has to be written down even if the storage is full by then.
        storage.setItem(this.#prefix + name, JSON.stringify(what) + (sentBefore === null ? " ".repeat(30) : ""));
        return true;
      });
    // Where only the key had room, it says at least that it was sent: a refusal is not the whole truth then.
    if (!write(entry) && sentBefore !== null) write({ ...entry, intent: null });
    return entry;
  }

  #read(name) {
    const written = this.#attempt((storage) => storage.getItem(this.#prefix + name));
    if (typeof written !== "string") return undefined;
    try {
      const { key, intent, sentBefore, seen } = JSON.parse(written);
      return { key: checkedKey(key), intent: intent && Intent.revive(intent), sentBefore, seen };
    } catch {
      return undefined; // not written by this
    }
  }

  #attempt(deed) {
    if (this.#storage === null) return undefined;
    try {
      return deed(this.#storage);
    } catch {
      this.#durable = false;
      return undefined;
    }
  }
}

/**
 * When an intent was first sent, by the wall's clock as it is now. The page that sent it knows by its steady clock. To
 * another one, where the wall's was set back since it was sent last, nobody can say any more: Infinity.
 */
function firstSent({ sentBefore = null, seen, steadyAt }, now, steady) {
  if (sentBefore === null) return null;
  if (steadyAt !== undefined) return Math.min(sentBefore, now - (steady - steadyAt));
  return now < (seen ?? sentBefore) - CORRECTED ? Infinity : sentBefore;
}

function storageOfTheTab() {
  try {
    return globalThis.sessionStorage ?? null;
  } catch {
    return null; // denied
  }
}

/** Whether two intents would do the same under the same key. */
function isSame(one, other) {
  const facts = ({ method, url, headers, body, key, contract }) =>
    JSON.stringify([method, url, headers["content-type"], text(body), key, contract]);
  return facts(one) === facts(other);
}

// --- forms ----------------------------------------------------------------------------------------------------------

const protectedForms = new WeakMap();

/**
 * Protect a form that the browser itself sends. A hidden field carries its key: the one that the server drew, or a new
 * one. Its buttons rest while it is under way, and it is sent once however often they are clicked.
 *
 * Reloaded, or come back to, the page keeps its key. After `patience` milliseconds without another page the buttons
 * work again, to ask again by the same key.
 */
export function protectForm(form, { name = "idempotency_key", patience = 10_000 } = {}) {
  const known = protectedForms.get(form);
  if (known !== undefined) return known;
  const field = keyFieldOf(form, name);
  const place = `${name} ${form.getAttribute("id") ?? [...document.forms].indexOf(form)}`;
  let key = keyOfThisVisit(place) ?? (field.value || newKey());
  let resting = []; // buttons
  let timer = null;

  const show = () => {
    field.value = key;
    keepForThisVisit(place, key);
  };
  const release = () => {
    clearTimeout(timer);
    timer = null;
    for (const button of resting) button.disabled = false;
    resting = [];
    form.removeAttribute("aria-busy");
    show();
  };
  const rest = () => {
    // What else listens may have kept the form from being sent. And a button that rests would not be part of it.
    resting = [...form.elements].filter(({ type, disabled }) => type === "submit" && !disabled);
    for (const button of resting) button.disabled = true;
    form.setAttribute("aria-busy", "true");
    timer = setTimeout(release, patience);
  };
  form.addEventListener("submit", (event) => {
    if (timer !== null) event.preventDefault();
    if (event.defaultPrevented) return;
    show();
    timer = setTimeout(() => (event.defaultPrevented ? release() : rest()), 0);
  });
  addEventListener("pageshow", release); // out of the back/forward cache, a page comes as it was left

  show();
  const handle = Object.freeze({
    get key() {
      return key;
    },
    /** A new key, for a new wish. */
    renew() {
      key = newKey();
      release();
    },
    release,
  });
  protectedForms.set(form, handle);
  return handle;
}

function keyFieldOf(form, name) {
  const found = [...form.elements].find((element) => element.getAttribute("name") === name);
  if (found !== undefined) return found;
  const field = Object.assign(document.createElement("input"), { type: "hidden", name });
  form.append(field);
  return field;
}

/** An entry of the tab's history is one visit: it outlives reloads, and whoever comes back finds it again. */
const visit = () => (typeof history.state === "object" && history.state !== null ? history.state : {});

const keyOfThisVisit = (place) => visit().twicesafe?.[place];

function keepForThisVisit(place, key) {
  if (keyOfThisVisit(place) === key) return;
  const kept = { ...visit().twicesafe, [place]: key };
  try {
    history.replaceState({ ...visit(), twicesafe: kept }, "");
  } catch {
    // A sandboxed frame has no history of its own: the key is kept until the page is left.
  }
}
