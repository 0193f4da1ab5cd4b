// Plays one case by js/twicesafe.js, in Node.js and in browsers, and says what came of it in the words of all clients.
// Times are in seconds, and none of it passes.

import { Budgets, Intent, send } from "../../../js/twicesafe.js";

const SECOND = 1000;

export async function play({ method, contract, headers, url, key, body, limits, fraction, wall, control }) {
  const waits = [];
  let passed = 0;
  let attempt = 0;
  const intent = Intent.create(method, url, { body: body === null ? undefined : bytesOf(body), headers, key, contract });
  const outcome = await send(intent, {
    policy: {
      attempts: limits.attempts,
      inProgress: limits.in_progress,
      deadline: limits.deadline * SECOND,
      attemptTimeout: limits.attempt_timeout * SECOND,
      firstDelay: limits.first_delay * SECOND,
      longestDelay: limits.longest_delay * SECOND,
      remembers: limits.remembers && limits.remembers * SECOND,
    },
    budgets: new Budgets({ interactive: { full: limits.budget, perSuccess: 0, perSecond: 0 } }),
    clock: () => performance.now() + passed,
    wall: () => wall * SECOND,
    random: () => fraction,
    sleep: async (milliseconds) => {
      waits.push(milliseconds / SECOND);
      passed += milliseconds + limits.overslept * SECOND;
      // A server that is not there yet is told how often it was waited for.
      if (control !== null) await fetch(`${control}/waited/${waits.length}`);
    },
    // The time of an attempt is over when the server falls silent, and not because this machine is slow.
    after: (milliseconds, fire) => {
      const answered = new AbortController();
      attempt += 1;
      if (control !== null) {
        fetch(`${control}/silent/${attempt}`, { signal: answered.signal })
          .then(({ status }) => {
            if (status !== 200) return;
            passed += milliseconds;
            fire();
          })
          .catch(() => {});
      }
      return () => answered.abort();
    },
  });
  const { kind, response, stop, sent, replayed, attempts } = outcome;
  return {
    outcome: kind,
    status: response?.status || null,
    stop,
    sent,
    replayed,
    key: outcome.key,
    attempts: attempts.length,
    waits,
    content: kind === "unknown" || response === null ? null : await response.text(),
  };
}

/** Bytes travel as base64. */
const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

/** Play them all, some at a time, in the order of their names; an error takes the place of what came of it. */
export async function playAll(cases, atATime = 12) {
  const played = {};
  const left = Object.entries(cases);
  async function work() {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const [name, told] = next;
      played[name] = await play(told).catch((error) => ({ error: String(error?.stack ?? error) }));
    }
  }
  await Promise.all(Array.from({ length: atATime }, work));
  return played;
}
