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
export const NEVER = "never"; // the recorded answer to all attempts: it was not done
export const NOTHING = "nothing";

// Reviewed: each is used for a condition that passes.
const TRANSIENT = new Set([408, 425, 429, 500, 502, 503, 504]);
const GIVEN_INSTEAD_OF_WORKING = new Set([501, 505]);
// However the server marks them: the same request gets the same answer.
const UNMENDED_BY_REPEATING = new Set([401, 403, 404, 422]);

/** Judge a whole answer, {status, headers, body}. Returns {again, says, replayed}. */
export function judge({ status, headers, body }) {
  const replayed = headers.get("idempotent-replayed")?.trim().toLowerCase() === "true";
  if (status >= 200 && status < 300) return { again: NO, says: DONE, replayed };
  if (replayed) return { again: NO, says: NEVER, replayed };
  const { kind, retryable } = problemIn(headers, body);
  if (status === 409) return { ...conflict(headers, kind, retryable), replayed };
  if (kind === "handler-failed") return { again: NO, says: NEVER, replayed };
  const says = status < 500 || refusesToWork(status, headers, kind) ? NOT_DONE : NOTHING;
  const passes = retryable === null || UNMENDED_BY_REPEATING.has(status) ? TRANSIENT.has(status) : retryable;
  return { again: passes ? YES : NO, says, replayed };
}

/** 409 is either about the first attempt, or about the state of the resource and final. */
function conflict(headers, kind, retryable) {
  if (kind === "outcome-unknown") return { again: NO, says: NOTHING };
  if (retryable !== false && (kind === "in-progress" || headers.has("retry-after"))) {
    return { again: IN_PROGRESS, says: NOTHING };
  }
  return { again: retryable ? YES : NO, says: NOT_DONE };
}

/** A 503 without a time to come back may be a gateway's, whose connection to the server broke at any moment. */
function refusesToWork(status, headers, kind) {
  if (GIVEN_INSTEAD_OF_WORKING.has(status) || kind === "store-unavailable") return true;
  return status === 503 && kind !== "commit-unknown" && headers.has("retry-after");
}

/** The problem document, read with suspicion: whatever is not one is no problem. */
function problemIn(headers, body) {
  const none = { kind: "", retryable: null };
  if (!/^application\/(problem\+)?json\s*(;|$)/i.test(headers.get("content-type") ?? "")) return none;
  try {
    const { type, retryable } = JSON.parse(body);
    return {
      kind: typeof type === "string" ? type.replace(/\/+$/, "").split(/[/:#]/).at(-1).toLowerCase() : "",
      retryable: typeof retryable === "boolean" ? retryable : null,
    };
  } catch {
    return none;
  }
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
