// Intents: their keys and their bytes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Intent, newKey, send } from "../../js/twicesafe.js";
import { DROP, OK, URL_, World } from "./world.js";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

function withCrypto(crypto, deed) {
  const real = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  const { crypto: source } = globalThis;
  Object.defineProperty(globalThis, "crypto", { value: crypto(source), configurable: true });
  try {
    return deed();
  } finally {
    Object.defineProperty(globalThis, "crypto", real);
  }
}

test("I8: two intents never share a key, however equal they are", () => {
  const keys = Array.from({ length: 100 }, () => Intent.create("POST", URL_, { json: 1 }).key);
  assert.equal(new Set(keys).size, 100);
  assert.ok(keys.every((key) => UUID.test(key)));
});

test("R22: where there is no page, an address that is not whole is refused in words that say so", () => {
  assert.throws(() => Intent.create("POST", "/charges", { json: 1 }), {
    name: "TypeError",
    message: "/charges is not a whole address, and there is no page here that it could begin at",
  });
});

test("R41: pages without TLS, which have no randomUUID, make keys as good; without chance none is made", () => {
  const insecure = (source) => ({ getRandomValues: (bytes) => source.getRandomValues(bytes) });
  const keys = withCrypto(insecure, () => Array.from({ length: 100 }, newKey));
  assert.equal(new Set(keys).size, 100);
  assert.ok(keys.every((key) => UUID.test(key)));
  assert.throws(() => withCrypto(() => undefined, newKey), /set globalThis.crypto/);
});

test("R33: a key is 1 to 255 printable characters, and is never repeated in a message", () => {
  for (const key of ["k", "a b", "x".repeat(255), '"quoted"'])
    assert.equal(Intent.create("POST", URL_, { key }).key, key);
  for (const key of ["", " ", " k", "k ", "k\n", "ключ", "x".repeat(256), 7, null]) {
    assert.throws(
      () => Intent.create("POST", URL_, { key }),
      (error) => error instanceof TypeError && (String(key).trim().length < 2 || !error.message.includes(String(key))),
    );
  }
});

test("I8: the bytes are fixed when the intent is made, and nothing changes them afterwards", () => {
  const cart = { amount: 100 };
  const bytes = new Uint8Array([1, 2, 3]);
  const intents = [
    Intent.create("post", URL_, { json: cart }),
    Intent.create("POST", URL_, { body: bytes }),
    Intent.create("POST", URL_, { body: bytes.buffer }),
    Intent.create("POST", URL_, { body: new DataView(bytes.buffer, 1) }),
  ];
  cart.amount = 7;
  bytes.fill(0);
  for (const intent of intents) intent.body.fill(9);
  assert.equal(new TextDecoder().decode(intents[0].body), '{"amount":100}');
  assert.deepEqual(
    intents.slice(1).map(({ body }) => [...body]),
    [
      [1, 2, 3],
      [1, 2, 3],
      [2, 3],
    ],
  );
  assert.throws(() => (intents[0].key = "other"), TypeError);
  assert.throws(() => (intents[0].headers.other = "x"), TypeError);
  assert.equal(intents[0].method, "POST");
});

test("R33: a body brings its media type, unless the caller says another; two bodies are refused", () => {
  const type = (options) => Intent.create("POST", URL_, options).headers["content-type"];
  assert.equal(type({ json: null }), "application/json");
  assert.equal(type({ json: 1, headers: { "Content-Type": "application/vnd.api+json" } }), "application/vnd.api+json");
  assert.equal(type({ form: { a: "1" } }), "application/x-www-form-urlencoded");
  assert.equal(type({ body: "x" }), undefined);
  const form = Intent.create("POST", URL_, {
    form: [
      ["a", "1 2"],
      ["a", "ü"],
    ],
  });
  assert.equal(new TextDecoder().decode(form.body), "a=1+2&a=%C3%BC");
  assert.throws(() => Intent.create("POST", URL_, { json: 1, body: "x" }), /one body/);
  assert.throws(() => Intent.create("POST", URL_, { body: new Blob(["x"]) }), /Intent.from/);
  assert.throws(() => Intent.create("POST", URL_, { json: () => 1 }), /JSON has no function/);
});

test("R36: the contract follows from the method, and can be said", () => {
  const contract = (method, said) => Intent.create(method, URL_, { contract: said }).contract;
  assert.deepEqual(
    ["GET", "head", "QUERY"].map((method) => contract(method)),
    ["safe", "safe", "safe"],
  );
  assert.deepEqual(
    ["POST", "PUT", "patch"].map((method) => contract(method)),
    ["keyed", "keyed", "keyed"],
  );
  assert.equal(contract("POST", "never"), "never");
  assert.throws(() => contract("POST", "once"), /a contract is one of/);
});

test("I8: a Request is frozen with its files, and every attempt sends the same bytes", async () => {
  const form = new FormData();
  form.append("scan", new Blob([new Uint8Array([0, 255, 10])]), "scan.bin");
  const intent = await Intent.from(new Request(URL_, { method: "POST", body: form, headers: { "x-a": "1" } }));
  const world = new World(DROP, OK);
  assert.equal((await send(intent, world.settings())).kind, "succeeded");
  const [first, second] = world.sent;
  assert.deepEqual([...first.body], [...second.body]);
  assert.match(first.headers["content-type"], /^multipart\/form-data; boundary=/);
  assert.ok(Buffer.from(first.body).includes(Buffer.from([0, 255, 10])));
  assert.equal(first.headers["x-a"], "1");
});

test("R34: an intent that was written down is the same when it is read", () => {
  const body = Uint8Array.from({ length: 256 }, (_, index) => index);
  const intent = Intent.create("PUT", URL_, { body, headers: { "X-A": "1" }, contract: "idempotent" });
  const revived = Intent.revive(JSON.parse(JSON.stringify(intent)));
  assert.deepEqual([...revived.body], [...body]);
  assert.deepEqual(revived.toJSON(), intent.toJSON());
});
