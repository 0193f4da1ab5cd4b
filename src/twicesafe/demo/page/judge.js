// What an answer means for the operation: whether to ask again, and what it tells of the effect.
//
// The two are apart: a 503 may be worth another attempt and still not say whether the one before it was done.

// Whether another attempt can bring a better answer.
export const NO = "no";
export const YES = "yes";
export const IN_PROGRESS = "in progress"; // another attempt is at work: wait for it

// What an answer tells about the effect.
export const DONE = "done";
export const NOT_DONE = "not done"; // this attempt did nothing; an earlier one may have
export const NOT_THIS_TIME = "not this time"; // this attempt did nothing, and what its key names may well be done
export const NEVER = "never"; // the recorded answer to all attempts: it was not done
export const NOTHING = "nothing";

// Reviewed: each is used for a condition that passes.
const TRANSIENT = new Set([408, 425, 429, 500, 502, 503, 504]);
const GIVEN_INSTEAD_OF_WORKING = new Set([501, 505]);
// However the server marks them: the same request gets the same answer.
const UNMENDED_BY_REPEATING = new Set([401, 403, 404, 422]);

const ELSEWHERE = new Set([307, 308]); // not done here, by definition

const KEY_REUSED = "key-reused";
const KEY_REUSED_TITLE = "idempotency-key is already used"; // where a server names its problem types otherwise

/** Judge a whole answer, {status, headers, body}. Returns {again, says, replayed}. */
export function judge({ status, headers, body }) {
  const replayed = headers.get("idempotent-replayed")?.trim().toLowerCase() === "true";
  if (status < 400 && !ELSEWHERE.has(status)) {
    // A redirect to a log-in page, say, does not tell that it is done. A browser shows redirects as status 0.
    const done = replayed || status === 303 || (status >= 200 && status < 300);
    return { again: NO, says: done ? DONE : NOTHING, replayed };
  }
  if (replayed) return { again: NO, says: NEVER, replayed };
  const problem = problemIn(headers, body);
  const { kind, retryable } = problem;
  if (status === 409) return { ...conflict(headers, problem), replayed };
  if (kind === "handler-failed") return { again: NO, says: NEVER, replayed };
  const says = status < 500 || refusesToWork(status, headers, kind) ? notDone(problem) : NOTHING;
  const passes = retryable === null || UNMENDED_BY_REPEATING.has(status) ? TRANSIENT.has(status) : retryable;
  return { again: passes ? YES : NO, says, replayed };
}

/** What a refusal tells of the operation. That the key was used for another request proves that it was used. */
function notDone({ kind, safeNewKey }) {
  return safeNewKey === false || kind === KEY_REUSED ? NOT_THIS_TIME : NOT_DONE;
}

/** 409 is either about the first attempt, or about the state of the resource and final. */
function conflict(headers, problem) {
  const { kind, retryable } = problem;
  if (kind === "outcome-unknown") return { again: NO, says: NOTHING };
  if (retryable !== false && (kind === "in-progress" || headers.has("retry-after"))) {
    return { again: IN_PROGRESS, says: NOTHING };
  }
  return { again: retryable ? YES : NO, says: notDone(problem) };
}

/** A 503 without a time to come back may be a gateway's, whose connection to the server broke at any moment. */
function refusesToWork(status, headers, kind) {
  if (GIVEN_INSTEAD_OF_WORKING.has(status) || kind === "store-unavailable" || kind === "store-misconfigured") return true;
  return status === 503 && kind !== "commit-unknown" && headers.has("retry-after");
}

/** The problem document, read with suspicion: whatever is not one is no problem. */
function problemIn(headers, body) {
  const none = { kind: "", retryable: null, safeNewKey: null };
  if (!/^application\/(problem\+)?json\s*(;|$)/i.test(headers.get("content-type") ?? "")) return none;
  try {
    const { type, title, retryable, safe_new_key: safeNewKey } = JSON.parse(body);
    const flag = (member) => (typeof member === "boolean" ? member : null);
    return { kind: kindOf(type, title), retryable: flag(retryable), safeNewKey: flag(safeNewKey) };
  } catch {
    return none;
  }
}

function kindOf(type, title) {
  if (typeof title === "string" && title.trim().toLowerCase() === KEY_REUSED_TITLE) return KEY_REUSED;
  return typeof type === "string" ? type.replace(/\/+$/, "").split(/[/:#]/).at(-1).toLowerCase() : "";
}

/**
 * Milliseconds that the server asks to be left alone, or null. A date is measured from the answer's own Date, so that a
 * clock that is off by an hour moves nothing.
 */
export function retryAfter(headers) {
  const value = headers.get("retry-after")?.trim() ?? "";
  if (/^\d+(\.\d+)?$/.test(value)) return Number(value) * 1000;
  const date = Date.parse(headers.get("date") ?? "");
  const wait = Date.parse(value) - (Number.isNaN(date) ? Date.now() : date);
  return Number.isNaN(wait) ? null : Math.max(0, wait);
}
