/** What may be assumed about sending an operation again. */
export type Contract = "safe" | "idempotent" | "conditional" | "keyed" | "never";

/** Whose retry budget it is: of somebody who waits, or of nobody. */
export type Work = "interactive" | "background";

/** Why there was no further attempt. */
export type Stop = "answered" | "not repeatable" | "attempts" | "deadline" | "forgotten" | "budget";

/** How far a request got. fetch() never proves that nothing was sent. */
export type Sent = "maybe" | "yes";

/** Why an attempt ended without a whole answer. A browser tells no more than that. */
export type FailureKind = "timeout" | "network";

// --- intents --------------------------------------------------------------------------------------------------------

/** At most one of `json`, `form` and `body`. */
export interface IntentOptions {
  json?: unknown;
  form?: Record<string, string> | readonly (readonly [string, string])[] | URLSearchParams | string;
  body?: string | ArrayBuffer | ArrayBufferView;
  headers?: HeadersInit;
  /** Where the cart already has one. */
  key?: string;
  /** "keyed" unless the method is safe. */
  contract?: Contract;
}

/** What JSON.stringify() writes down of an intent. `body` has one letter for each byte. */
export interface WrittenIntent {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
  key: string;
  contract: Contract;
}

/** What is to happen once, with its key and its bytes. Nothing in it changes. */
export class Intent {
  private constructor();
  static create(method: string, url: string | URL, options?: IntentOptions): Intent;
  /** The intent that a Request amounts to. It is read to its end, and not sent. */
  static from(request: Request, options?: { key?: string; contract?: Contract }): Promise<Intent>;
  static revive(written: WrittenIntent): Intent;
  readonly method: string;
  /** Absolute. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly key: string;
  readonly contract: Contract;
  /** A copy. */
  get body(): Uint8Array;
  toJSON(): WrittenIntent;
}

/** A key for a new intent: a random UUID. */
export function newKey(): string;

// --- outcomes -------------------------------------------------------------------------------------------------------

/** The record of one attempt. Durations are in milliseconds; `began` counts from the start of the operation. */
export interface Attempt {
  readonly number: number;
  readonly began: number;
  readonly took: number;
  readonly sent: Sent;
  /** Null where no head came, or a browser hides it. */
  readonly status: number | null;
  readonly failure: FailureKind | null;
  /** What the answer or the failure was taken to mean. */
  readonly reason: string;
  /** The wait before the next attempt; null after the last. */
  readonly delay: number | null;
  readonly stop: Stop | null;
  readonly deadlineLeft: number;
  readonly budgetLeft: number;
}

interface Ended {
  /** The key that was sent; null for what is safe. */
  readonly key: string | null;
  readonly attempts: readonly Attempt[];
  readonly stop: Stop;
  readonly sent: Sent;
}

/** It is done. `replayed`: an earlier attempt did it. */
export interface Succeeded extends Ended {
  readonly kind: "succeeded";
  readonly replayed: boolean;
  readonly response: Response;
  readonly error: null;
}

/** It is not done, and `response` says why. `replayed`: that is the recorded answer to every attempt. */
export interface Rejected extends Ended {
  readonly kind: "rejected";
  readonly replayed: boolean;
  readonly response: Response;
  readonly error: null;
}

/**
 * Nobody can say whether it is done. Send the same intent again; not another, which could do it twice.
 *
 * `response` is the last answer, if one came that settled nothing; with an `error`, its body broke.
 */
export interface Unknown extends Ended {
  readonly kind: "unknown";
  readonly replayed: false;
  readonly response: Response | null;
  /** What fetch() rejected with, if the last attempt failed. */
  readonly error: unknown;
}

export type Outcome = Succeeded | Rejected | Unknown;

// --- sending --------------------------------------------------------------------------------------------------------

/** Limits of one operation's attempts, all of them in force at once. Durations are in milliseconds. */
export interface Policy {
  readonly attempts: number;
  /** How many answers "in progress" are waited out; they are no failures. */
  readonly inProgress: number;
  /** For the whole operation, waits included. */
  readonly deadline: number;
  /** Of each attempt, its body included. */
  readonly attemptTimeout: number;
  readonly firstDelay: number;
  readonly longestDelay: number;
  readonly work: Work;
  /** The header that carries the key. */
  readonly header: string;
  /** For how long the server knows a key, from when it was first sent; null where nobody says. */
  readonly remembers: number | null;
}

export const DEFAULT_POLICY: Policy;

/** In retries: what a budget holds when it is full, what each success pays, and what each second brings. */
export interface BudgetSize {
  full: number;
  perSuccess: number;
  perSecond: number;
}

/** Retry budgets by origin and class of work. All of a page share one set, unless they are given another. */
export class Budgets {
  constructor(sizes?: Partial<Record<Work, BudgetSize>>);
}

/** What happens, as it happens. */
export type Moment =
  | { type: "sending"; number: number }
  | { type: "answered"; number: number; status: number; headers: Headers }
  | { type: "failed"; number: number; failure: FailureKind }
  | { type: "waiting"; number: number; delay: number };

export interface Settings {
  policy?: Partial<Policy>;
  /** Gives up. send() rejects with its reason, and the intent can be sent again. */
  signal?: AbortSignal;
  /** More of what fetch() takes: credentials, keepalive, headers for authentication. */
  init?: Omit<RequestInit, "method" | "body" | "redirect" | "signal">;
  /** When an earlier call, of a page before a reload say, first sent it, in milliseconds since the Unix epoch. */
  sentBefore?: number | null;
  observe?: (moment: Moment) => void;
  budgets?: Budgets;
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /** A steady clock, in milliseconds. */
  clock?: () => number;
  /** Milliseconds since the Unix epoch. */
  wall?: () => number;
  /** From [0, 1). */
  random?: () => number;
  sleep?: (milliseconds: number, signal?: AbortSignal) => Promise<void>;
  /** Calls `fire` after so many milliseconds. Returns what calls that off. */
  after?: (milliseconds: number, fire: () => void) => () => void;
}

/** Send an intent until its outcome is known or time is up. Rejects only with what is no outcome. */
export function send(intent: Intent, settings?: Settings): Promise<Outcome>;

/** What was known of the operation that was broken off by `error`. */
export function reportOf(error: unknown): { key: string | null; attempts: readonly Attempt[] } | undefined;

// --- kept until the outcome is known --------------------------------------------------------------------------------

/** Other bytes are under way by the same name. */
export class IntentConflictError extends Error {
  readonly kept: Intent;
}

/** Intents by name, kept until their outcome is known. */
export class IntentStore {
  /**
   * `storage`: sessionStorage where none is given; null for memory only. `remembers`: milliseconds for which the server
   * knows a key, a day where it is not said; after it nothing is sent again.
   */
  constructor(
    storage?: Pick<Storage, "getItem" | "setItem" | "removeItem"> | null,
    options?: { prefix?: string; remembers?: number | null },
  );
  /** Whether all that was to be kept so far would outlive a reload. */
  get durable(): boolean;
  /** The key of this name, made when it is first asked for. */
  key(name: string): string;
  /** The intent under this name whose outcome is not known. */
  kept(name: string): Intent | null;
  /** The intent under this name, made if need be. IntentConflictError where other bytes are under way. */
  reserve(name: string, method: string, url: string | URL, options?: IntentOptions): Intent;
  /** Send what is reserved, and forget it when its outcome is known. */
  send(name: string, settings?: Omit<Settings, "sentBefore">): Promise<Outcome>;
  /** The next one under this name has a new key. */
  forget(name: string): void;
}

// --- forms ----------------------------------------------------------------------------------------------------------

export interface ProtectedForm {
  readonly key: string;
  /** A new key, for a new wish. */
  renew(): void;
  /** The buttons work again, by the same key. */
  release(): void;
}

/** Protect a form that the browser itself sends. `name`: of the hidden field; `patience`: milliseconds. */
export function protectForm(form: HTMLFormElement, options?: { name?: string; patience?: number }): ProtectedForm;
