// What docs/javascript.md shows is run, one example after the other, in a page made of stand-ins.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

const ROOT = new URL("../../", import.meta.url);
const MODULE = new URL("js/twicesafe.js", ROOT).href;
const document_ = await readFile(new URL("docs/javascript.md", ROOT), "utf8");
const EXAMPLES = [...document_.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code);

/** Run an example. Returns what it showed. */
async function run(example, answers, more = {}) {
  const shown = [];
  const page = {
    show: (...words) => shown.push(...words),
    cart: { id: 7, amount: 100 },
    location: new URL("http://shop.test/cart"),
    fetch: async () => answers.shift(),
    ...more,
  };
  for (const [name, value] of Object.entries(page))
    Object.defineProperty(globalThis, name, { value, configurable: true });
  const code = example.replace('from "twicesafe"', `from ${JSON.stringify(MODULE)}`);
  await import(`data:text/javascript,${encodeURIComponent(code)}`);
  for (const name of Object.keys(page)) if (name !== "fetch") delete globalThis[name];
  assert.equal(answers.length, 0);
  return shown;
}

const answer = (status, body) => new Response(body, { status });

test("R35, R41: an outcome is one of three", async () => {
  assert.deepEqual(await run(EXAMPLES[0], [answer(201, '{"charge":1}')]), ["paid: 1"]);
  assert.deepEqual(await run(`${EXAMPLES[0]} // again`, [answer(402)]), ["refused: 402"]);
  assert.deepEqual(await run(`${EXAMPLES[0]} // once more`, [answer(302)]), [
    "not known yet: send the same intent again",
  ]);
});

test("R34, R41: a cart is kept until its outcome is known", async () => {
  const items = new Map();
  const sessionStorage = {
    getItem: (name) => items.get(name) ?? null,
    setItem: (name, value) => items.set(name, value),
    removeItem: (name) => items.delete(name),
  };
  assert.deepEqual(await run(EXAMPLES[1], [answer(302)], { sessionStorage }), ["unknown"]);
  assert.deepEqual(await run(`${EXAMPLES[1]} // reloaded`, [answer(201)], { sessionStorage }), [
    "this cart was sent before, and has no answer yet",
    "succeeded",
  ]);
  assert.equal(items.size, 0);
});

test("R39, R41: limits are given, and giving up is the caller's", async () => {
  assert.deepEqual(await run(EXAMPLES[3], [answer(204)]), [4, "succeeded"]);
});

test("R41: the form's example names what is exported", async () => {
  const exported = Object.keys(await import(MODULE));
  for (const example of EXAMPLES) {
    const names = example.match(/^import \{ (.*?) \} from "twicesafe";$/m)[1].split(", ");
    assert.deepEqual(
      names.filter((name) => !exported.includes(name)),
      [],
    );
  }
});

test("R41: there are no other examples", () => {
  assert.equal(EXAMPLES.length, 4);
});
