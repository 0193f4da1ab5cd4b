// Where intents are kept until their outcome is known.

import assert from "node:assert/strict";
import { test } from "node:test";

import { IntentConflictError, IntentStore } from "../../js/twicesafe.js";
import { DROP, OK, REPLAY, URL_, World, problem } from "./world.js";

/** A tab's storage. */
class Memory {
  items = new Map();
  getItem(name) {
    return this.items.get(name) ?? null;
  }
  setItem(name, value) {
    this.items.set(name, value);
  }
  removeItem(name) {
    this.items.delete(name);
  }
}

/** What a page does: reserve a cart, and send it. */
async function pay(store, world, json = { amount: 100 }, name = "cart-1") {
  store.reserve(name, "POST", URL_, { json });
  return store.send(name, world.settings());
}

const keysOf = (world) => [...new Set(world.sent.map(({ headers }) => headers["idempotency-key"]))];

test("R34, R41: a page that was reloaded sends the same key and bytes, until the outcome is known", async () => {
  const storage = new Memory();
  const lost = new World(DROP);
  const key = new IntentStore(storage).key("cart-1");
  assert.equal((await pay(new IntentStore(storage), lost)).kind, "unknown");
  const reloaded = new IntentStore(storage);
  assert.equal(reloaded.kept("cart-1").key, key);
  const world = new World(REPLAY);
  assert.equal((await reloaded.send("cart-1", world.settings())).kind, "succeeded");
  assert.deepEqual([keysOf(lost), keysOf(world)], [[key], [key]]);
  assert.deepEqual([...lost.sent[0].body], [...world.sent[0].body]);
  assert.equal(storage.items.size, 0);
  assert.equal(reloaded.kept("cart-1"), null);
  assert.notEqual(new IntentStore(storage).key("cart-1"), key);
});

test("R37: a refusal after the reload does not say that nothing was charged before it", async () => {
  const storage = new Memory();
  await pay(new IntentStore(storage), new World(DROP));
  const outcome = await new IntentStore(storage).send("cart-1", new World({ status: 401 }).settings());
  assert.equal(outcome.kind, "unknown");
  assert.notEqual(new IntentStore(storage).kept("cart-1"), null);
});

test("R34: it is written down before it is sent: a page that is left in between has a doubt", async () => {
  const storage = new Memory();
  const giveUp = new AbortController();
  const store = new IntentStore(storage);
  store.reserve("cart-1", "POST", URL_, { json: 1 });
  const world = new World({ hang: () => giveUp.abort() });
  await assert.rejects(store.send("cart-1", world.settings({ signal: giveUp.signal })), { name: "AbortError" });
  const outcome = await new IntentStore(storage).send("cart-1", new World({ status: 402 }).settings());
  assert.equal(outcome.kind, "unknown");
});

test("R34, K: a page that comes back after the server forgot its keys sends nothing, and is unknown", async () => {
  const storage = new Memory();
  const day = 24 * 60 * 60 * 1000;
  await pay(new IntentStore(storage), new World(DROP));
  const trials = [
    [undefined, day / 2, 1],
    [undefined, day, 0],
    [2 * day, day, 1],
    [null, 9 * day, 1],
  ];
  for (const [remembers, age, times] of trials) {
    const world = new World({ status: 401 });
    world.now = age;
    const store = new IntentStore(storage, { remembers });
    const outcome = await store.send("cart-1", world.settings());
    assert.deepEqual([world.sent.length, outcome.kind], [times, "unknown"]);
    assert.equal(outcome.stop, times === 1 ? "answered" : "forgotten");
    assert.notEqual(store.kept("cart-1"), null);
  }
  const world = new World(OK); // from when it was first sent, not from when it was sent last
  world.now = 10 * day;
  assert.equal((await new IntentStore(storage).send("cart-1", world.settings())).stop, "forgotten");
});

test("R34, I6: by a clock that was set back nobody knows its age: a page that comes back sends nothing", async () => {
  const hour = 60 * 60 * 1000;
  for (const [again, back, times] of [
    [0, -3 * hour, 0], // behind when it was first sent
    [5 * hour, 2 * hour, 0], // behind when it was sent last
    [5 * hour, 5 * hour - 900, 1], // corrected
  ]) {
    const storage = new Memory();
    await pay(new IntentStore(storage), new World(DROP));
    const later = new World(DROP);
    later.now = again;
    await new IntentStore(storage).send("cart-1", later.settings());
    const world = new World(REPLAY);
    world.now = back;
    const outcome = await new IntentStore(storage).send("cart-1", world.settings());
    assert.deepEqual([world.sent.length, outcome.kind], [times, times === 1 ? "succeeded" : "unknown"]);
    if (times === 0) assert.equal(outcome.stop, "forgotten");
  }
});

test("R34: the page that sent it knows by its steady clock how long ago that was, whatever the wall's says", async () => {
  const hour = 60 * 60 * 1000;
  for (const [age, times] of [
    [23 * hour, 1],
    [24 * hour, 0],
  ]) {
    const store = new IntentStore(new Memory());
    const world = new World(DROP);
    const { wall } = world.settings();
    store.reserve("cart-1", "POST", URL_, { json: 1 });
    await store.send("cart-1", world.settings());
    const sent = world.sent.length;
    world.now = age;
    const outcome = await store.send("cart-1", world.settings({ wall: () => wall() - 30 * hour }));
    assert.equal(outcome.kind, "unknown");
    assert.equal(world.sent.length > sent, times === 1);
  }
});

test("I8: other bytes under the same name are refused until the outcome is known", async () => {
  const storage = new Memory();
  const store = new IntentStore(storage);
  await pay(store, new World(DROP));
  for (const page of [store, new IntentStore(storage)]) {
    const world = new World(OK);
    await assert.rejects(pay(page, world, { amount: 200 }), (error) => {
      assert.ok(error instanceof IntentConflictError);
      assert.equal(new TextDecoder().decode(error.kept.body), '{"amount":100}');
      return true;
    });
    assert.equal(world.sent.length, 0);
    assert.throws(() => page.reserve("cart-1", "PUT", URL_, { json: { amount: 100 } }), IntentConflictError);
    assert.throws(() => page.reserve("cart-1", "POST", URL_, { json: { amount: 100 }, key: "k" }), IntentConflictError);
  }
  const [first, second] = [new World({ status: 402 }), new World(OK)];
  store.forget("cart-1");
  assert.equal((await pay(store, first, { amount: 200 })).kind, "rejected");
  assert.equal((await pay(store, second, { amount: 300 })).kind, "succeeded");
  assert.notDeepEqual(keysOf(first), keysOf(second));
});

test("I8: two clicks are one: whoever asks while it is under way gets the same outcome", async () => {
  const store = new IntentStore(new Memory());
  const world = new World(DROP, OK);
  const outcomes = await Promise.all([pay(store, world), pay(store, world), pay(store, world)]);
  assert.equal(world.sent.length, 2);
  assert.deepEqual(
    outcomes.map((outcome) => outcome === outcomes[0]),
    [true, true, true],
  );
});

test("I8: a click that came after the success sends the same key again, and another wish has another", async () => {
  const store = new IntentStore(new Memory());
  const [first, late, other] = [new World(OK), new World(REPLAY), new World(OK)];
  assert.equal((await pay(store, first)).replayed, false);
  assert.equal((await pay(store, late)).replayed, true);
  assert.equal((await pay(store, other, { amount: 200 })).replayed, false);
  assert.deepEqual(keysOf(first), keysOf(late));
  assert.notDeepEqual(keysOf(first), keysOf(other));
  const again = new World(OK);
  store.forget("cart-1");
  await pay(store, again, { amount: 200 });
  assert.notDeepEqual(keysOf(other), keysOf(again));
});

test("R41: two tabs with one storage have one key, and join what the other has under way", async () => {
  const storage = new Memory();
  const [one, other] = [new IntentStore(storage), new IntentStore(storage)];
  assert.equal(one.key("cart-1"), other.key("cart-1"));
  const [first, second, third] = [new World(DROP), new World(REPLAY), new World(REPLAY)];
  await pay(one, first);
  assert.throws(() => other.reserve("cart-1", "POST", URL_, { json: { amount: 1 } }), IntentConflictError);
  assert.equal((await pay(other, second)).kind, "succeeded");
  assert.equal((await pay(one, third)).kind, "succeeded");
  assert.deepEqual([keysOf(first), keysOf(second)], [keysOf(third), keysOf(third)]);
});

test("R41: a page sends what it has reserved, or nothing: never what another tab has put in its place", async () => {
  const storage = new Memory();
  const [one, other] = [new IntentStore(storage), new IntentStore(storage)];
  other.reserve("cart-1", "POST", URL_, { json: "mine" });
  one.forget("cart-1");
  await pay(one, new World(DROP), "theirs");
  const world = new World(OK);
  await assert.rejects(other.send("cart-1", world.settings()), IntentConflictError);
  assert.equal(world.sent.length, 0);
  assert.equal((await pay(other, world, "theirs")).kind, "succeeded");
});

test("R41: a page keeps the key that it was made with, whatever another tab has done meanwhile", async () => {
  const storage = new Memory();
  const [one, other] = [new IntentStore(storage), new IntentStore(storage)];
  const key = one.key("cart-1");
  assert.equal(other.key("cart-1"), key);
  const [first, late] = [new World(OK), new World(REPLAY)];
  await pay(one, first);
  assert.notEqual(new IntentStore(storage).key("cart-1"), key);
  assert.equal((await pay(other, late)).replayed, true);
  assert.deepEqual(keysOf(first), keysOf(late));
});

test("R41: a tab that was copied has the key and the bytes of the first", async () => {
  const first = new Memory();
  await pay(new IntentStore(first), new World(DROP));
  const copy = Object.assign(new Memory(), { items: new Map(first.items) });
  assert.deepEqual(new IntentStore(copy).kept("cart-1").toJSON(), new IntentStore(first).kept("cart-1").toJSON());
});

test("R41: another tab's next intent is not written over by a page that still knows the one before", async () => {
  const storage = new Memory();
  const [one, other] = [new IntentStore(storage), new IntentStore(storage)];
  const key = other.key("cart-1");
  await pay(one, new World(OK));
  await pay(one, new World(DROP), { amount: 200 });
  assert.throws(() => other.reserve("cart-1", "POST", URL_, { json: { amount: 100 } }), IntentConflictError);
  one.forget("cart-1");
  assert.equal(other.key("cart-1"), key);
});

class Full extends Memory {
  setItem() {
    throw new DOMException("full", "QuotaExceededError");
  }
}

test("R41: where nothing can be stored it is kept in memory, and said to be", async () => {
  const denied = {
    getItem: () => {
      throw new DOMException("denied", "SecurityError");
    },
  };
  for (const storage of [new Full(), denied, null]) {
    const store = new IntentStore(storage);
    const [first, second] = [new World(DROP), new World({ status: 401 })];
    const key = store.key("cart-1");
    await pay(store, first);
    assert.equal((await store.send("cart-1", second.settings())).kind, "unknown");
    assert.deepEqual([keysOf(first), keysOf(second), store.durable], [[key], [key], false]);
    assert.throws(() => store.reserve("cart-1", "POST", URL_, { json: 2 }), IntentConflictError);
  }
  assert.equal(new IntentStore(new Memory()).durable, true);
  assert.equal(new IntentStore().durable, "sessionStorage" in globalThis);
});

test("R41: a storage that fills up later loses no doubt that it could not write down", async () => {
  const storage = new Memory();
  const store = new IntentStore(storage);
  store.reserve("cart-1", "POST", URL_, { json: 1 });
  storage.setItem = Full.prototype.setItem;
  await store.send("cart-1", new World(DROP).settings());
  assert.equal((await store.send("cart-1", new World({ status: 401 }).settings())).kind, "unknown");
  assert.equal(store.durable, false);
});

test("R41: what somebody else wrote under the name is not taken for an intent", () => {
  for (const written of [
    "",
    "{",
    "null",
    "7",
    '{"key":""}',
    '{"key":"k","intent":{"url":"/"}}',
    '{"key":"k","intent":7}',
  ]) {
    const storage = new Memory();
    storage.setItem("twicesafe.cart-1", written);
    const store = new IntentStore(storage);
    assert.equal(store.kept("cart-1"), null);
    assert.equal(store.key("cart-1").length, 36);
  }
});

test("R41: credentials are not written down, and what was never reserved is not sent", async () => {
  const store = new IntentStore(new Memory());
  for (const header of ["Authorization", "Cookie"]) {
    assert.throws(() => store.reserve("cart-1", "POST", URL_, { headers: { [header]: "secret" } }), /init.headers/);
  }
  await assert.rejects(store.send("cart-1"), /nothing is reserved/);
});

test("R41: what was forgotten while it was under way takes nothing of the next one with it", async () => {
  const storage = new Memory();
  const store = new IntentStore(storage);
  let release;
  const fetch = () => new Promise((answer) => (release = () => answer(new Response(null, { status: 204 }))));
  store.reserve("cart-1", "POST", URL_, { json: 1 });
  const old = store.send("cart-1", new World().settings({ fetch }));
  store.forget("cart-1");
  const next = store.reserve("cart-1", "POST", URL_, { json: 2 });
  const world = new World(DROP);
  assert.equal((await store.send("cart-1", world.settings())).key, next.key);
  assert.deepEqual(keysOf(world), [next.key]);
  release();
  assert.equal((await old).kind, "succeeded");
  assert.equal(store.kept("cart-1"), next);
  assert.equal(new IntentStore(storage).kept("cart-1").key, next.key);
});

test("I6: a key that the server knows with other bytes is kept: only those bytes tell what became of it", async () => {
  const storage = new Memory();
  const outcome = await pay(new IntentStore(storage), new World(problem(422, "key-reused")));
  assert.equal(outcome.kind, "unknown");
  assert.notEqual(new IntentStore(storage).kept("cart-1"), null);
});

/** Storage that is full as soon as so many letters are in it. */
class Filling extends Memory {
  limit = Infinity;
  setItem(name, value) {
    if (value.length > Math.max(this.limit, this.items.get(name)?.length ?? 0)) {
      throw new DOMException("full", "QuotaExceededError");
    }
    super.setItem(name, value);
  }
}

for (const [when, begin] of [
  ["reserved", (store) => store.reserve("cart-1", "POST", URL_, { json: { amount: 100 } })],
  ["named", (store) => store.key("cart-1")],
]) {
  test(`R34, I6: what was sent when the storage was full, after it was ${when}, is not taken for unsent`, async () => {
    const storage = new Filling();
    const store = new IntentStore(storage);
    begin(store);
    storage.limit = 0;
    assert.equal((await pay(store, new World(DROP))).kind, "unknown");
    const refused = new World({ status: 422 });
    assert.equal((await pay(new IntentStore(storage), refused)).kind, "unknown");
    assert.deepEqual(keysOf(refused), [store.key("cart-1")]);
  });
}
