// How long it waits, how often it asks, and when it gives up.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Budgets, DEFAULT_POLICY, reportOf, send } from "../../js/twicesafe.js";
import { BUSY, DROP, IN_PROGRESS, OK, REPLAY, World, charge, problem } from "./world.js";

const DATE = "Wed, 21 Oct 2015 06:28:00 GMT"; // an hour behind

/** What is waited after a 503 with these lines, where the jitter adds nothing. */
async function waitFor(headers, fraction = 0) {
  const world = new World({ status: 503, headers }, OK);
  world.fraction = fraction;
  const { kind } = await send(charge(), world.settings({ policy: { deadline: 600_000 } }));
  assert.equal(kind, "succeeded");
  return world.waited[0];
}

for (const [value, wait] of [
  ["0", 0],
  ["120", 120_000],
  ["  7 ", 7000],
  ["007", 7000],
  ["0.503", 503],
  ["1.5", 1500],
  ["Wed, 21 Oct 2015 06:28:04 GMT", 4000],
  ["Wednesday, 21-Oct-15 06:28:04 GMT", 4000],
  ["Wed Oct 21 06:28:04 2015", 4000],
  ["Wed, 21 Oct 2015 06:27:00 GMT", 0],
  ["3, 11, soon", 11_000],
  ["soon, 11", 11_000],
  ["2, Wed, 21 Oct 2015 06:28:04 GMT", 4000],
]) {
  test(`R38, K: Retry-After ${value}`, async () => {
    assert.equal(await waitFor({ date: DATE, "retry-after": value }), wait);
  });
}

for (const value of [
  "soon",
  "",
  "-5",
  "+5",
  "5s",
  "1e3",
  "0x10",
  "nan",
  "inf",
  "٣".normalize(),
  "Wed, 21 Oct 99999 06:28:04 GMT",
  "Wed, 32 Oct 2015 06:28:04 GMT",
  "Wed, 21 Okt 2015 06:28:04 GMT",
  "Wed, 21 Oct 2015 06:28:: 4 GMT",
  "2015-10-21",
]) {
  test(`R38, K: Retry-After ${JSON.stringify(value)} makes no sense, and is ignored`, async () => {
    const line = Buffer.from(value).toString("latin1");
    assert.equal(await waitFor({ date: DATE, "retry-after": line }, 0.5), 250);
  });
}

test("R38: without a Date, or one that can be read, the caller's calendar stands in", async () => {
  const headers = { "retry-after": "Wed, 21 Oct 2015 07:28:09 GMT" };
  assert.equal(await waitFor(headers), 9000);
  assert.equal(await waitFor({ ...headers, date: "today" }), 9000);
});

test("R38, K: whoever was told the same Retry-After does not come back in lockstep, and never early", async () => {
  assert.equal(await waitFor({ "retry-after": "4" }, 0), 4000);
  assert.equal(await waitFor({ "retry-after": "4" }, 0.5), 5000);
  assert.equal(await waitFor({ "retry-after": "60" }, 0.999), 69_990);
});

test("R38, K: a wait that does not fit ends the call now, with what is known", async () => {
  for (const value of ["60", "9".repeat(5000), "4.96"]) {
    const world = new World({ status: 503, headers: { "retry-after": value } });
    const outcome = await send(charge(), world.settings({ policy: { deadline: 5000 } }));
    assert.deepEqual([world.sent.length, world.waited.length], [1, 0]);
    assert.deepEqual([outcome.kind, outcome.stop], ["rejected", "deadline"]);
  }
});

test("R38, K: jitter is full, and capped before it is drawn", async () => {
  const policy = { attempts: 7, firstDelay: 100, longestDelay: 800, deadline: 60_000 };
  for (const [fraction, waits] of [
    [0.5, [50, 100, 200, 400, 400, 400]],
    [0, [0, 0, 0, 0, 0, 0]],
  ]) {
    const world = new World(DROP);
    world.fraction = fraction;
    await send(charge(), world.settings({ policy }));
    assert.deepEqual(world.waited, waits);
  }
});

test("I3, R36: an answer in progress is no failure, and is waited out so many times", async () => {
  let world = new World(...Array(6).fill(IN_PROGRESS), REPLAY);
  assert.equal((await send(charge(), world.settings({ policy: { attempts: 2 } }))).kind, "succeeded");
  assert.deepEqual([world.sent.length, world.waited.every((wait) => wait >= 1000)], [7, true]);
  world = new World(problem(409, "in-progress"));
  const { kind, stop } = await send(charge(), world.settings({ policy: { inProgress: 3 } }));
  assert.deepEqual([world.sent.length, kind, stop], [4, "unknown", "attempts"]);
});

test("R39: attempts and the deadline bound the call", async () => {
  let world = new World(DROP);
  assert.equal((await send(charge(), world.settings({ policy: { attempts: 3 } }))).stop, "attempts");
  assert.equal(world.sent.length, 3);
  world = new World({ ...DROP, takes: 900 });
  const policy = { attempts: 100, deadline: 2000, firstDelay: 10 };
  const { kind, stop } = await send(charge(), world.settings({ policy }));
  assert.deepEqual([world.sent.length, kind, stop], [3, "unknown", "deadline"]);
});

test("R39: whoever slept past the deadline does not try again", async () => {
  const world = new World(DROP);
  const sleep = async () => (world.now += 60_000);
  const { kind, stop } = await send(charge(), world.settings({ sleep }));
  assert.deepEqual([world.sent.length, kind, stop], [1, "unknown", "deadline"]);
});

test("R39, K: the deadline clips each attempt, and its end breaks the attempt off", async () => {
  const world = new World({ hang: () => world.ring() }, { hang: () => world.ring() });
  const policy = { attemptTimeout: 3000, deadline: 5000, firstDelay: 1000 };
  const { kind, stop, error } = await send(charge(), world.settings({ policy }));
  assert.deepEqual(
    world.timers.map(({ milliseconds }) => milliseconds),
    [3000, 1500],
  );
  assert.deepEqual(
    world.sent.map(({ signal }) => signal.aborted),
    [true, true],
  );
  assert.deepEqual([kind, stop, error.name], ["unknown", "deadline", "TimeoutError"]);
  assert.deepEqual(
    world.moments.filter(({ failure }) => failure).map(({ failure }) => failure),
    ["timeout", "timeout"],
  );
});

test("R39, K: the night through which the machine slept counts, though the steady clock stood still", async () => {
  const { now } = Date;
  const world = new World(DROP);
  const sleep = async () => {
    Date.now = () => now() + 25 * 60 * 60 * 1000;
  };
  const settings = world.settings({ sleep, policy: { deadline: 2 ** 31 - 1, remembers: 24 * 60 * 60 * 1000 } });
  delete settings.clock;
  try {
    const { stop } = await send(charge(), settings);
    assert.deepEqual([world.sent.length, stop], [1, "forgotten"]);
  } finally {
    Date.now = now;
  }
});

test("R39: a fetch that heeds no signal does not outlive the deadline", async () => {
  const world = new World(OK);
  const fetch = () => {
    world.ring();
    return new Promise(() => {});
  };
  const outcome = await send(charge(), world.settings({ fetch, policy: { attempts: 1 } }));
  assert.deepEqual([outcome.kind, outcome.attempts[0].failure], ["unknown", "timeout"]);
});

test("I8: who gives up gets his own reason, nothing more is sent, and the intent can be sent again", async () => {
  const reason = new Error("the shopper left");
  const giveUp = new AbortController();
  const world = new World({ hang: () => giveUp.abort(reason) }, REPLAY);
  const intent = charge();
  await assert.rejects(send(intent, world.settings({ signal: giveUp.signal })), reason);
  assert.deepEqual([world.sent.length, world.sent[0].signal.aborted], [1, true]);
  assert.deepEqual(world.moments, [{ type: "sending", number: 1 }]);
  assert.equal(reportOf(reason).key, intent.key);
  assert.equal((await send(intent, world.settings())).kind, "succeeded");
  assert.deepEqual(new Set(world.sent.map(({ headers }) => headers["idempotency-key"])), new Set(["key-1"]));
});

test("I8: who gives up while it waits, or beforehand, waits and sends no longer", async () => {
  const giveUp = new AbortController();
  const world = new World(DROP);
  const observe = ({ type }) => type === "waiting" && giveUp.abort();
  const settings = { observe, signal: giveUp.signal };
  await assert.rejects(send(charge(), world.settings(settings)), { name: "AbortError" });
  assert.equal(reportOf(giveUp.signal.reason).attempts.length, 1);
  await assert.rejects(send(charge(), world.settings(settings)), { name: "AbortError" });
  assert.equal(world.sent.length, 1);
});

test("I8: the real pause ends when its caller gives up", async () => {
  const giveUp = new AbortController();
  const world = new World(DROP);
  const settings = world.settings({ signal: giveUp.signal, policy: { firstDelay: 20_000, longestDelay: 20_000 } });
  delete settings.sleep;
  const outcome = send(charge(), settings);
  setImmediate(() => giveUp.abort());
  await assert.rejects(outcome, { name: "AbortError" });
  assert.equal(world.sent.length, 1);
});

test("R36, K: nothing is sent again by the time that the server may have forgotten the key", async () => {
  let world = new World({ ...DROP, takes: 400 });
  const policy = { remembers: 1000, firstDelay: 1000 };
  let outcome = await send(charge(), world.settings({ policy }));
  assert.deepEqual([world.sent.length, outcome.kind, outcome.stop], [1, "unknown", "forgotten"]);
  assert.deepEqual(world.waited, []);
  world = new World({ ...DROP, takes: 400 });
  const sleep = async () => (world.now += 500);
  outcome = await send(charge(), world.settings({ policy: { ...policy, firstDelay: 900 }, sleep }));
  assert.deepEqual([world.sent.length, outcome.stop], [1, "forgotten"]);
  for (const [contract, age, times] of [
    ["keyed", 899, 1],
    ["keyed", 900, 0],
    ["idempotent", 900, 1],
  ]) {
    world = new World(OK);
    const sentBefore = world.settings().wall() - age;
    outcome = await send(charge(contract), world.settings({ policy, sentBefore }));
    assert.equal(world.sent.length, times);
    assert.equal(outcome.kind, times === 1 ? "succeeded" : "unknown");
  }
});

// --- budgets --------------------------------------------------------------------------------------------------------

const SMALL = { full: 3, perSuccess: 0.5, perSecond: 0 };

test("R39: a page shares an origin's budget, and the original answer comes back when it is empty", async () => {
  const budgets = new Budgets({ interactive: SMALL });
  const stops = [];
  for (let call = 0; call < 2; call += 1) {
    const world = new World({ status: 429 });
    const outcome = await send(charge(), world.settings({ budgets }));
    assert.deepEqual([outcome.kind, outcome.response.status], ["rejected", 429]);
    stops.push([world.sent.length, outcome.stop]);
  }
  assert.deepEqual(stops, [
    [4, "attempts"],
    [1, "budget"],
  ]);
});

test("R39: what may have been done costs two, waiting for it nothing, and a success pays", async () => {
  const budgets = new Budgets({ interactive: SMALL });
  const world = new World(DROP, IN_PROGRESS, IN_PROGRESS, OK);
  const { attempts } = await send(charge(), world.settings({ budgets }));
  assert.deepEqual(
    attempts.map(({ budgetLeft }) => budgetLeft),
    [1, 1, 1, 1.5],
  );
});

test("R39: origins and classes of work have budgets of their own, and time refills them", () => {
  const budgets = new Budgets({ interactive: { full: 1, perSuccess: 0, perSecond: 0.1 } });
  assert.equal(budgets.of("http://a.test", "interactive", 0).take(1, 0), true);
  assert.equal(budgets.of("http://a.test", "interactive", 9900).take(1, 9900), false);
  assert.equal(budgets.of("http://b.test", "interactive", 0).take(1, 0), true);
  assert.equal(budgets.of("http://a.test", "background", 0).take(1, 0), true);
  assert.equal(budgets.of("http://a.test", "interactive", 10_000).take(1, 10_000), true);
  assert.throws(() => new Budgets({ background: { full: -1, perSuccess: 0, perSecond: 0 } }), RangeError);
});

test("R39: origins whose budget is full are forgotten, spent ones are not", () => {
  const budgets = new Budgets({ interactive: { full: 1, perSuccess: 0, perSecond: 0 } });
  const first = budgets.of("http://full.test", "interactive", 0);
  assert.equal(budgets.of("http://spent.test", "interactive", 0).take(1, 0), true);
  for (let number = 0; number < 2000; number += 1) budgets.of(`http://h${number}.test`, "interactive", 0);
  assert.notEqual(budgets.of("http://full.test", "interactive", 0), first);
  assert.equal(budgets.of("http://spent.test", "interactive", 0).take(1, 0), false);
});

test("R39: a limit that makes no sense is refused at once", async () => {
  for (const wrong of [
    { attempts: 0 },
    { attempts: 1.5 },
    { inProgress: -1 },
    { deadline: 0 },
    { deadline: null },
    { deadline: NaN },
    { deadline: 2 ** 31 },
    { attemptTimeout: -1 },
    { firstDelay: "1" },
    { work: "toString" },
    { tries: 3 },
    { remembers: 0 },
    { remembers: "1" },
  ]) {
    const world = new World(OK);
    await assert.rejects(send(charge(), world.settings({ policy: wrong })), /must be|has no/, JSON.stringify(wrong));
    assert.equal(world.sent.length, 0);
  }
  assert.equal(Object.isFrozen(DEFAULT_POLICY), true);
});
