// What just happened, in one sentence.

import { money } from "./money.js";

const CAUSES = {
  reload: "the page was reloaded before it had an answer",
  ask: "the page had no answer and asked again",
  again: "the same cart was paid again",
  slow: "the provider took longer than the page would wait",
  kill: "the server was killed between the charge and the answer",
  lose: "the answer was lost after the charge",
  double: "the customer clicked twice",
  edit: "the cart was edited under the same key",
};

const TIMES = ["not at all", "once", "twice", "three times", "four times", "five times"];

/**
 * The sentence as pieces, [words, tone], where the tone is "once", "again" or nothing.
 *
 * `causes`: names from CAUSES. `naive`, `safe`: {charges, surplus, replayed, waited, refused, unknown}, where `surplus`
 * is what was charged beyond the first charge, in cents.
 */
export function tell({ causes, naive, safe }) {
  const known = Object.keys(CAUSES).filter((cause) => causes.has(cause));
  if (known.length === 0 && naive.charges === 1 && safe.charges === 1) {
    return [
      ["Nothing went wrong: both endpoints "],
      ["charged once", "once"],
      [", and on such a day nobody can tell them apart."],
    ];
  }
  const lead = known.length === 0 ? "nothing was broken on purpose" : list(known.map((cause) => CAUSES[cause]), ", and ");
  return [
    [`${capital(lead)}: the naive endpoint `],
    ...outcome(naive),
    ["; the safe one "],
    ...outcome(safe),
    ["."],
  ];
}

function outcome({ charges, surplus, replayed, waited, refused, unknown }) {
  const deeds = [];
  if (waited) deeds.push("told the rival to wait");
  if (replayed) deeds.push("replayed its first answer");
  if (refused) deeds.push("refused the edited cart with 422, because a key names one intent");
  if (unknown) deeds.push("has not answered yet: ask again with the same key");
  const times = `charged ${TIMES[charges] ?? `${charges} times`}`;
  const sentence = [[times, charges === 1 ? "once" : charges > 1 ? "again" : undefined]];
  if (surplus > 0) sentence.push([`, ${money(surplus)} too much`]);
  if (deeds.length > 0) sentence.push([(deeds.length === 1 ? " and " : ", ") + list(deeds)]);
  return sentence;
}

function list(parts, last = " and ") {
  return parts.length < 2 ? parts.join("") : parts.slice(0, -1).join(", ") + last + parts.at(-1);
}

const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);
