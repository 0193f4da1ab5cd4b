// A world in which answers follow a script, waiting takes no time, and chance is what the test says.

import { Budgets, Intent } from "../../js/twicesafe.js";

export const URL_ = "http://shop.test/charges";

export const OK = { status: 201, body: '{"charge":1}', headers: { "content-type": "application/json" } };
export const REPLAY = { ...OK, headers: { ...OK.headers, "idempotent-replayed": "true" } };
export const DROP = { drop: true };
export const BUSY = { status: 503, headers: { "retry-after": "2" } };

/** A problem document as twicesafe's servers write it. */
export function problem(status, type, members = {}, headers = {}) {
  return {
    status,
    body: JSON.stringify({ type: `urn:twicesafe:problem:${type}`, status, ...members }),
    headers: { "content-type": "application/problem+json", ...headers },
  };
}

export const IN_PROGRESS = problem(409, "in-progress", { retryable: true }, { "retry-after": "1" });

export const charge = (contract, key = "key-1") =>
  Intent.create("POST", URL_, { json: { amount: 100 }, key, contract });

/**
 * Settings for send(). Each attempt gets the next step of `script`, and the last one for as long as it is asked:
 * {status, headers, body}, or {drop}, {cut}: in the body, {hang}; `takes` milliseconds. `sent` and `waited` grow.
 */
export class World {
  constructor(...script) {
    this.script = script;
    this.now = 0;
    this.fraction = 0.5;
    this.sent = [];
    this.waited = [];
    this.moments = [];
    this.timers = [];
  }

  settings(more = {}) {
    return {
      fetch: (url, init) => this.answer(url, init),
      clock: () => this.now,
      wall: () => Date.UTC(2015, 9, 21, 7, 28) + this.now,
      random: () => this.fraction,
      sleep: async (milliseconds) => {
        this.waited.push(milliseconds);
        this.now += milliseconds;
      },
      after: (milliseconds, fire) => {
        this.timers.push({ milliseconds, fire });
        return () => {};
      },
      observe: (moment) => this.moments.push(moment),
      budgets: new Budgets(),
      ...more,
    };
  }

  /** The time of the attempt that is under way is over. */
  ring() {
    const { milliseconds, fire } = this.timers.at(-1);
    this.now += milliseconds;
    fire();
  }

  async answer(url, init) {
    const step = this.script[Math.min(this.sent.length, this.script.length - 1)];
    this.sent.push({ url, ...init });
    this.now += step.takes ?? 0;
    step.then?.();
    if (step.hang) return hang(init.signal, step.hang);
    if (step.drop) throw new TypeError("fetch failed");
    const empty = [204, 304].includes(step.status);
    const body = step.cut ? broken() : empty ? null : (step.body ?? "");
    return new Response(body, { status: step.status, headers: step.headers });
  }
}

/** Silence, until the attempt is given up. `begun` is called when it begins. */
function hang(signal, begun) {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
    begun();
  });
}

const broken = () =>
  new ReadableStream({
    pull: (controller) => controller.error(new TypeError("terminated")),
  });
