// What is sent again, and what comes of it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Intent, send } from "../../js/twicesafe.js";
import { BUSY, DROP, IN_PROGRESS, OK, REPLAY, URL_, World, charge, problem } from "./world.js";

const status = (code, headers = {}) => ({ status: code, headers });
const moved = (code) => status(code, { location: "/elsewhere" });
const COMMIT_LOST = problem(503, "commit-unknown", {}, { "retry-after": "1" });
const RECORDED_TWICE = status(500, { "idempotent-replayed": "true, true" });
const CUT = { status: 201, cut: true };

// Name, contract, script, how often it is sent, what comes of it, its status, why it ends if not by being answered.
const CASES = [
  ["at once", "keyed", [OK], 1, "succeeded", 201],
  ["dropped", "keyed", [DROP, REPLAY], 2, "succeeded", 201],
  ["broken in its body", "keyed", [CUT, REPLAY], 2, "succeeded", 201],
  ["an error broken in its body", "keyed", [{ status: 503, cut: true }, OK], 2, "succeeded", 201],
  ["down for a moment", "keyed", [status(503), OK], 2, "succeeded", 201],
  ["every passing status", "keyed", [status(500), status(502), status(504), OK], 4, "succeeded", 201],
  ["too early, too slow", "keyed", [status(425), status(408), OK], 3, "succeeded", 201],
  ["too many requests", "keyed", [status(429, { "retry-after": "2" }), OK], 2, "succeeded", 201],
  ["in progress, done", "keyed", [DROP, IN_PROGRESS, IN_PROGRESS, REPLAY], 4, "succeeded", 201],
  ["in progress by Retry-After", "keyed", [status(409, { "retry-after": "1" }), OK], 2, "succeeded", 201],
  ["in progress by its type", "keyed", [problem(409, "in-progress"), OK], 2, "succeeded", 201],
  ["in progress by an address", "keyed", [problem(409, "x/in-progress//"), OK], 2, "succeeded", 201],
  ["retryable by its problem", "keyed", [problem(400, "cut", { retryable: true }), OK], 2, "succeeded", 201],
  ["in progress, not to be asked", "keyed", [problem(409, "in-progress", { retryable: false })], 1, "rejected", 409],
  ["already done", "keyed", [problem(409, "already-done", { retryable: false })], 1, "succeeded", 409],
  ["down for good", "keyed", [status(503)], 4, "unknown", 503, "attempts"],
  ["busy for good", "keyed", [BUSY], 4, "rejected", 503, "attempts"],
  ["limited for good", "keyed", [status(429)], 4, "rejected", 429, "attempts"],
  ["dropped for good", "keyed", [DROP], 4, "unknown", null, "attempts"],
  ["a gateway that asks to wait", "keyed", [status(502, { "retry-after": "1" })], 4, "unknown", 502, "attempts"],
  ["unretryable by its problem", "keyed", [problem(503, "closed", { retryable: false })], 1, "unknown", 503],
  ["not implemented", "keyed", [status(501)], 1, "rejected", 501],
  ["its store is down", "keyed", [problem(503, "store-unavailable")], 4, "rejected", 503, "attempts"],
  ["its commit was lost", "keyed", [COMMIT_LOST], 4, "unknown", 503, "attempts"],
  ["a recorded failure", "keyed", [status(500, { "idempotent-replayed": "true" })], 1, "rejected", 500],
  ["a failure that is twice said to be recorded", "keyed", [RECORDED_TWICE], 1, "rejected", 500],
  ["a recorded 503", "keyed", [DROP, status(503, { "idempotent-replayed": "TRUE" })], 2, "rejected", 503],
  ["a failure that will be replayed", "keyed", [problem(500, "handler-failed")], 1, "rejected", 500],
  ["a recorded redirect", "keyed", [status(302, { "idempotent-replayed": "true" })], 1, "succeeded", 302],
  ...[400, 401, 402, 403, 404, 409, 410, 412, 422].map((code) => [
    `refused with ${code}`,
    "keyed",
    [status(code)],
    1,
    "rejected",
    code,
  ]),
  ["mismatch", "keyed", [problem(422, "key-reused")], 1, "unknown", 422],
  ["mismatch by its title", "keyed", [titled("Idempotency-Key is already used")], 1, "unknown", 422],
  ["no new key, says the server", "keyed", [problem(422, "odd", { safe_new_key: false })], 1, "unknown", 422],
  ["invalid", "keyed", [problem(422, "invalid", { retryable: true })], 1, "rejected", 422],
  ["mismatch after an unknown", "keyed", [DROP, status(422)], 2, "unknown", 422],
  ["logged out after an unknown", "keyed", [DROP, status(401)], 2, "unknown", 401],
  ["dropped, busy, then refused", "keyed", [DROP, BUSY, status(402)], 3, "unknown", 402],
  ["limited, then refused", "keyed", [status(429), status(402)], 2, "rejected", 402],
  ["unknown, says the server", "keyed", [problem(409, "outcome-unknown", { retryable: true })], 1, "unknown", 409],
  ["see other", "keyed", [moved(303)], 1, "succeeded", 303],
  ["to the log-in page", "keyed", [moved(302)], 1, "unknown", 302],
  ["moved", "keyed", [moved(301)], 1, "unknown", 301],
  ["not modified", "keyed", [status(304)], 1, "unknown", 304],
  ["elsewhere", "keyed", [moved(307)], 1, "rejected", 307],
  ["keyless, at once", "never", [OK], 1, "succeeded", 201],
  ["keyless, dropped", "never", [DROP], 1, "unknown", null, "not repeatable"],
  ["keyless, 500", "never", [status(500)], 1, "unknown", 500, "not repeatable"],
  ["keyless, 429", "never", [status(429)], 1, "rejected", 429, "not repeatable"],
  ["keyless, asked to wait", "never", [status(409, { "retry-after": "1" })], 1, "rejected", 409, "not repeatable"],
  ["idempotent, dropped", "idempotent", [DROP, OK], 2, "succeeded", 201],
  ["idempotent, asked to wait", "idempotent", [status(409, { "retry-after": "1" }), OK], 2, "succeeded", 201],
  ["idempotent, dropped, then gone", "idempotent", [DROP, status(404)], 2, "unknown", 404],
  ["idempotent, see other", "idempotent", [moved(303)], 1, "unknown", 303],
  ["conditional, dropped, then changed", "conditional", [DROP, status(412)], 2, "unknown", 412],
  ["conditional, not modified", "conditional", [status(304)], 1, "succeeded", 304],
  ["safe, down for good", "safe", [status(503)], 4, "rejected", 503, "attempts"],
  ["safe, dropped for good", "safe", [DROP], 4, "unknown", null, "attempts"],
  ["safe, missing after a drop", "safe", [DROP, status(404)], 2, "rejected", 404],
  ["safe, to the log-in page", "safe", [moved(302)], 1, "rejected", 302],
];

function titled(title) {
  return {
    status: 422,
    body: JSON.stringify({ title }),
    headers: { "content-type": "application/json; charset=utf-8" },
  };
}

for (const [name, contract, script, times, kind, code, stop = "answered"] of CASES) {
  test(`R36, R37, I8: ${name} (${contract})`, async () => {
    const world = new World(...script);
    const intent = charge(contract);
    const outcome = await send(intent, world.settings());
    assert.equal(world.sent.length, times);
    const key = contract === "safe" ? undefined : "key-1";
    for (const [index, { url, method, headers, body }] of world.sent.entries()) {
      assert.deepEqual([url, method, headers["idempotency-key"]], [URL_, "POST", key]);
      assert.equal(new TextDecoder().decode(body), '{"amount":100}');
      assert.equal(headers["twicesafe-attempt"], String(index + 1));
      const [limit, operation] = index > 0 ? ["4", "8000000000000"] : [];
      assert.deepEqual([headers["twicesafe-attempt-limit"], headers["twicesafe-operation"]], [limit, operation]);
    }
    assert.deepEqual([outcome.kind, outcome.stop, outcome.response?.status ?? null], [kind, stop, code]);
    assert.equal(outcome.key, key ?? null);
    assert.equal(outcome.attempts.length, times);
    assert.equal(outcome.attempts.at(-1).stop, stop);
    assert.equal(outcome.sent, code === null ? "maybe" : "yes");
    assert.equal(world.waited.length, times - 1);
  });
}

test("R35: the whole response is there to be read, and what failed to come says so", async () => {
  const done = await send(charge(), new World(DROP, REPLAY).settings());
  assert.deepEqual(await done.response.json(), { charge: 1 });
  assert.deepEqual([done.replayed, done.error, done.sent], [true, null, "yes"]);
  const lost = await send(charge(), new World(CUT).settings({ policy: { attempts: 1 } }));
  assert.deepEqual([lost.kind, lost.response.status, lost.sent], ["unknown", 201, "yes"]);
  assert.equal(lost.error.message, "terminated");
  assert.equal(lost.attempts[0].reason, "network in the body of a 201");
});

test("R40: every attempt is on record, with its reason, its delay and what was left", async () => {
  const world = new World({ ...DROP, takes: 30 }, { ...BUSY, takes: 20 }, { ...OK, takes: 10 });
  const { attempts } = await send(charge(), world.settings());
  assert.deepEqual(
    attempts.map(({ number, began, took, sent, reason, delay, stop }) => [
      number,
      began,
      took,
      sent,
      reason,
      delay,
      stop,
    ]),
    [
      [1, 0, 30, "maybe", "network", 250, null],
      [2, 280, 20, "yes", "503", 2500, null],
      [3, 2800, 10, "yes", "201", null, "answered"],
    ],
  );
  assert.deepEqual(
    attempts.map(({ deadlineLeft }) => deadlineLeft),
    [29_970, 29_700, 27_190],
  );
  const left = attempts.map(({ budgetLeft }) => Math.round(budgetLeft * 1000) / 1000);
  assert.deepEqual(left, [18, 17.005, 17.156]);
  assert.deepEqual(
    world.moments.map(({ type }) => type),
    ["sending", "failed", "waiting", "sending", "answered", "waiting", "sending", "answered"],
  );
  assert.throws(() => attempts.push(1), TypeError);
});

test("R37: what was sent before a reload may have been done, so that a refusal after it stays unknown", async () => {
  for (const code of [401, 402, 422]) {
    const outcome = await send(charge(), new World({ status: code }).settings({ sentBefore: 0 }));
    assert.equal(outcome.kind, "unknown");
  }
  assert.equal((await send(charge(), new World(REPLAY).settings({ sentBefore: 0 }))).kind, "succeeded");
});

test("I6: what only looks like a problem document is none", async () => {
  const bodies = [
    "",
    "null",
    "[]",
    "7",
    '"in-progress"',
    '{"type":',
    '{"type":7,"retryable":"yes"}',
    "[".repeat(50_000),
  ];
  const long = `{"type":"in-progress","pad":"${"x".repeat(70_000)}"}`;
  for (const body of [...bodies, long, Buffer.from('{"type":"in-progress","of":"\xff"}', "latin1")]) {
    const headers = { "content-type": "application/problem+json" };
    const outcome = await send(charge(), new World({ status: 409, body, headers }).settings());
    assert.deepEqual([outcome.kind, outcome.attempts.length], ["rejected", 1]);
  }
  const elsewhere = { ...problem(409, "in-progress"), headers: { "content-type": "text/plain" } };
  assert.equal((await send(charge(), new World(elsewhere).settings())).kind, "rejected");
});

test("R35: what can never be sent is no outcome, and nothing is sent", async () => {
  const world = new World(OK);
  const taken = Intent.create("POST", URL_, { headers: { "Idempotency-Key": "other" } });
  await assert.rejects(send(taken, world.settings()), /give it as its key/);
  await assert.rejects(send(Intent.create("GET", URL_, { body: "x" }), world.settings()), TypeError);
  await assert.rejects(send(charge(), world.settings({ policy: { header: "not a header" } })), TypeError);
  await assert.rejects(send(charge(), world.settings({ deadline: 5000 })), /no setting deadline/);
  assert.throws(() => Intent.create("POST", "gopher://shop.test"), /gopher/);
  assert.throws(() => Intent.create("POST", "/charges"), TypeError);
  assert.equal(world.sent.length, 0);
});

test("I8: where the key would be left out without a word nothing is sent", async (context) => {
  const world = new World(OK);
  await assert.rejects(send(charge(), world.settings({ init: { mode: "no-cors" } })), /would not be sent/);
  const Plain = globalThis.Request;
  context.after(() => (globalThis.Request = Plain));
  globalThis.Request = class extends Plain {
    constructor(url, { headers, ...rest }) {
      const { "proxy-key": _, ...allowed } = headers; // as a browser does
      super(url, { ...rest, headers: allowed });
    }
  };
  const policy = { header: "Proxy-Key" };
  await assert.rejects(send(charge(), world.settings({ policy })), /Proxy-Key would not be sent/);
  assert.equal(world.sent.length, 0);
  assert.equal((await send(charge("safe"), world.settings({ policy, init: { mode: "no-cors" } }))).kind, "succeeded");
});

test("R33: credentials and other options go with each attempt, and never take the place of key and bytes", async () => {
  const world = new World(DROP, OK);
  const init = {
    credentials: "include",
    redirect: "follow",
    method: "PUT",
    body: "other",
    headers: { Authorization: "t" },
  };
  init.headers["Content-Type"] = "text/plain";
  await send(charge(), world.settings({ init, policy: { header: "PayPal-Request-Id" } }));
  for (const { credentials, redirect, method, body, headers } of world.sent) {
    assert.deepEqual([credentials, redirect, method, body.length], ["include", "manual", "POST", 14]);
    assert.deepEqual([headers.authorization, headers["paypal-request-id"]], ["t", "key-1"]);
    assert.deepEqual([headers["idempotency-key"], headers["content-type"]], [undefined, "application/json"]);
  }
});
