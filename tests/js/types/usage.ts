// What a program may write, and after each @ts-expect-error what it may not. It is checked, and never run.

import {
  Budgets,
  DEFAULT_POLICY,
  Intent,
  IntentConflictError,
  IntentStore,
  newKey,
  protectForm,
  reportOf,
  send,
} from "../../../js/twicesafe.js";
import type { Attempt, Outcome, Settings, Succeeded, WrittenIntent } from "../../../js/twicesafe.js";

export async function outcomes(intent: Intent): Promise<string> {
  const outcome: Outcome = await send(intent);
  switch (outcome.kind) {
    case "succeeded":
      return `${outcome.response.status} ${outcome.replayed}`;
    case "rejected":
      return outcome.response.statusText;
    case "unknown":
      // @ts-expect-error there may be none
      outcome.response.status;
      return `${outcome.response?.status} ${outcome.error} ${outcome.sent satisfies "maybe" | "yes"}`;
    default:
      return outcome satisfies never;
  }
}

export function narrowed(outcome: Succeeded): Response {
  // @ts-expect-error nothing in an outcome changes
  outcome.key = "other";
  // @ts-expect-error nor in its attempts
  outcome.attempts.push(outcome.attempts[0] as Attempt);
  return outcome.response;
}

export const intents: Intent[] = [
  Intent.create("POST", "/charges", { json: { amount: 100 }, key: newKey(), contract: "keyed" }),
  Intent.create("POST", new URL("https://shop.example/"), { form: [["a", "1"]], headers: new Headers() }),
  Intent.create("PUT", "/", { body: new Uint8Array(3) }),
  await Intent.from(new Request("/", { method: "POST", body: new FormData() }), { contract: "never" }),
  Intent.revive(JSON.parse("{}") as WrittenIntent),
  // @ts-expect-error no such contract
  Intent.create("POST", "/", { contract: "once" }),
  // @ts-expect-error files have to be read first
  Intent.create("POST", "/", { body: new Blob() }),
  // @ts-expect-error intents are created
  new Intent(),
];

// @ts-expect-error an intent does not change
intents[0]!.key = newKey();

export const settings: Settings = {
  policy: { ...DEFAULT_POLICY, deadline: 5000, work: "background" },
  budgets: new Budgets({ interactive: { full: 3, perSuccess: 0.1, perSecond: 0 } }),
  signal: AbortSignal.timeout(1000),
  init: { credentials: "include", headers: { Authorization: "t" } },
  fetch: globalThis.fetch,
  sleep: async () => {},
  after: (milliseconds, fire) => {
    const timer = setTimeout(fire, milliseconds);
    return () => clearTimeout(timer);
  },
  observe: (moment) => {
    if (moment.type === "waiting") console.log(moment.delay);
    // @ts-expect-error only an answer has one
    if (moment.type === "failed") console.log(moment.status);
  },
};

// @ts-expect-error key and bytes are the intent's
export const overridden: Settings = { init: { body: "other" } };
// @ts-expect-error a slip of the pen
export const mistyped: Settings = { policy: { dedline: 5000 } };

export async function kept(): Promise<void> {
  const store = new IntentStore(localStorage, { prefix: "shop." });
  new IntentStore(null);
  if (!store.durable) console.warn(store.key("cart"));
  try {
    const intent: Intent = store.reserve("cart", "POST", "/charges", { json: [] });
    console.log(intent.key, store.kept("cart")?.url, (await store.send("cart", settings)).kind);
  } catch (error) {
    if (error instanceof IntentConflictError) console.log(error.kept.body.length);
    console.log(reportOf(error)?.key);
  }
  store.forget("cart");
}

const guard = protectForm(document.forms[0]!, { name: "key", patience: 5000 });
guard.renew();
guard.release();
console.log(guard.key);
// @ts-expect-error a form, not its button
protectForm(document.createElement("button"));
