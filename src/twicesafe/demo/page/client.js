// Sends one operation, again if it must, until its outcome is known.
//
// One key and the same bytes for every attempt: the caller makes both beforehand and keeps them. An attempt without an
// answer proves nothing, so it is made again. What is known never turns worse into better: once an attempt may have
// taken effect, only a success, or an answer that the server marks as the recorded one, tells what became of it.

import { DONE, IN_PROGRESS, NEVER, NO, NOTHING, NOT_DONE, YES, judge, retryAfter } from "./judge.js";

// The three outcomes.
export const SUCCEEDED = "succeeded";
export const REJECTED = "rejected";
export const UNKNOWN = "unknown"; // ask again with the same key and the same bytes

const DEFAULTS = {
  attempts: 4,
  inProgress: 30, // answers "in progress" are no failures; this many are waited out
  deadline: 30_000, // milliseconds for the whole operation, waits included
  attemptTimeout: 10_000,
  firstDelay: 500,
  longestDelay: 10_000,
  observe: () => {},
  fetch: (...request) => fetch(...request),
  clock: () => performance.now(),
  sleep: (milliseconds) => new Promise((wake) => setTimeout(wake, milliseconds)),
  random: Math.random,
};

const SHORTEST_ATTEMPT = 50; // with less left, a further attempt would only make a known outcome unknown

/** A key for a new intent. Make it when the cart is made, never when it is sent. */
export const newKey = () => crypto.randomUUID();

/**
 * Send `operation` {url, key, body, headers?} until its outcome is known or no time is left.
 *
 * Resolves to {kind, key, attempts, stop, replayed, status?, headers?, body?, failure?} and never rejects. `observe`
 * hears of each step as it happens: {type: "sending" | "answered" | "failed" | "waiting", number, ...}.
 */
export async function send(operation, settings = {}) {
  const rules = { ...DEFAULTS, ...settings };
  const until = rules.clock() + rules.deadline;
  let failures = 0;
  let waits = 0;
  let perhapsDone = false;
  for (let number = 1; ; number += 1) {
    const got = await attempt(operation, number, Math.min(rules.attemptTimeout, until - rules.clock()), rules);
    const judgment = got.failure ? { again: YES, says: NOTHING, replayed: false } : judge(got);
    if (judgment.again === IN_PROGRESS) waits += 1;
    else failures += 1;
    let [delay, stop] = plan(got, judgment, failures, waits, until - rules.clock(), rules);
    if (stop === null) {
      rules.observe({ type: "waiting", number, delay });
      await rules.sleep(delay);
      if (until - rules.clock() < SHORTEST_ATTEMPT / 2) stop = "deadline";
      else perhapsDone ||= judgment.says === NOTHING;
    }
    if (stop !== null) {
      const kind = conclude(judgment.says, perhapsDone);
      return { ...got, kind, key: operation.key, attempts: number, stop, replayed: judgment.replayed };
    }
  }
}

async function attempt(operation, number, timeout, rules) {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), timeout);
  rules.observe({ type: "sending", number });
  try {
    const response = await rules.fetch(operation.url, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...operation.headers,
        "idempotency-key": operation.key,
        "twicesafe-attempt": String(number),
      },
      body: operation.body,
      signal: controller.signal,
      cache: "no-store",
      redirect: "manual", // the key is for this server
    });
    const answered = { status: response.status, headers: response.headers, body: await response.text() };
    rules.observe({ type: "answered", number, ...answered });
    return answered;
  } catch {
    const failure = controller.signal.aborted ? "timeout" : "dropped";
    rules.observe({ type: "failed", number, failure });
    return { failure };
  } finally {
    clearTimeout(timer);
  }
}

/** [delay, null] before the next attempt, or [null, stop]: why there is none. */
function plan(got, { again }, failures, waits, timeLeft, rules) {
  if (again === NO) return [null, "answered"];
  const waiting = again === IN_PROGRESS;
  if (waiting ? waits > rules.inProgress : failures >= rules.attempts) return [null, "attempts"];
  const window = Math.min(rules.longestDelay, rules.firstDelay * 2 ** ((waiting ? waits : failures) - 1));
  const longest = timeLeft - SHORTEST_ATTEMPT;
  const asked = got.failure ? null : retryAfter(got.headers);
  const delay = asked === null ? rules.random() * window : above(asked, window, longest, rules);
  return delay <= longest ? [delay, null] : [null, "deadline"];
}

/** What the server asked for is a floor. The jitter goes above it, or everybody who was told the same comes at once. */
function above(asked, window, longest, { longestDelay, random }) {
  const spread = Math.min(Math.max(window, asked / 2), longestDelay, Math.max(0, longest - asked));
  return asked + random() * spread;
}

function conclude(says, perhapsDone) {
  if (says === DONE) return SUCCEEDED;
  return says === NEVER || (says === NOT_DONE && !perhapsDone) ? REJECTED : UNKNOWN;
}
