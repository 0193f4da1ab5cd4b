"""What a check has to find at each server of the gallery: the trials that its fault is named by, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from twicesafe.conformance.findings import Verdict

FAIL, UNSUPPORTED, INCONCLUSIVE = Verdict.FAIL, Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE
Verdicts = Mapping[str, Verdict]
NOTHING: Final[Verdicts] = MappingProxyType({})


KIN: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "keys": (
        "replay", "missing-key", "empty-key", "malformed-key", "overlong-key", "doubled-key", "quoted-key",
        "padded-key", "other-case-key", "other-caller", "other-caller-leak", "replay-authorized", "unauthorized",
        "statuses",
    ),
    "fingerprints": (
        "replay", "fresh-key", "changed-body", "changed-query", "changed-path", "changed-method",
        "changed-while-running", "conflict-leak", "statuses", "json-member-order", "json-number-form",
        "json-big-integers", "json-null", "other-case-key",
    ),
    "claims": (
        "replay", "parallel-duplicates", "duplicates-while-running", "changed-while-running", "upload-cut",
        "hang-up-while-running", "answer-lost", "retry-after", "statuses", "after-expiry",
    ),
    "records": (
        "replay", "replay-headers", "replay-marker", "fresh-key", "parallel-duplicates", "duplicates-while-running",
        "other-caller", "rejected-then-corrected", "server-error", "throttled", "unauthorized", "answer-lost",
        "hang-up-while-running", "conflict-leak",
    ),
})  # fmt: skip
"""By what a server goes wrong over, the trials that have to do with that. Of the honest one all are made, and each
server is that one but for the methods that it replaces."""


class Exhibit(NamedTuple):
    """One server's due."""

    named: Verdicts
    """The trials that say what is wrong, each of which has to."""
    besides: Verdicts = NOTHING
    """What comes of the same fault in other trials, by the way."""
    profile: str = "ietf"
    notes: bool = False
    """Whether it is asked to take notes, which any bytes are, rather than orders."""


def fails(*trials: str, profile: str = "ietf", notes: bool = False, **besides: Verdict) -> Exhibit:
    """These fail."""
    may = {name.replace("_", "-"): verdict for name, verdict in besides.items()}
    return Exhibit(dict.fromkeys(trials, FAIL), may, profile, notes)


DUE: Final[Mapping[str, Exhibit]] = {
    # --- keys ---------------------------------------------------------------------------------------------------------
    "KeepsQuotes": fails("quoted-key"),
    "FoldsCase": fails("other-case-key"),
    "TakesTheFirst": fails("doubled-key"),
    "TakesTheLast": fails("doubled-key"),
    "JoinsLines": fails("doubled-key"),
    "TakesNothing": fails("empty-key", statuses=FAIL),
    "SharesNoKey": fails("missing-key", statuses=FAIL),
    "CutsOff": fails("overlong-key"),
    "FailsOnLongKeys": fails("overlong-key"),
    "FailsOutsideAscii": fails("malformed-key"),
    "HasNoScope": fails("other-caller", "other-caller-leak"),
    "KeepsOthersOut": fails("other-caller", "other-caller-leak"),
    "ReplaysToAnybody": fails("replay-authorized"),
    "KeepsRefusedCallers": fails("unauthorized"),
    # --- fingerprints -------------------------------------------------------------------------------------------------
    "ComparesNothing": fails(
        "changed-body", "changed-query", "changed-path", "changed-method",
        conflict_leak=INCONCLUSIVE, json_big_integers=INCONCLUSIVE, json_null=INCONCLUSIVE,
    ),
    "IgnoresBody": fails(
        "changed-body", conflict_leak=INCONCLUSIVE, json_big_integers=INCONCLUSIVE, json_null=INCONCLUSIVE
    ),
    "IgnoresQuery": fails("changed-query"),
    "IgnoresPath": fails("changed-path"),
    "IgnoresMethod": fails("changed-method"),
    "ComparesDoubles": fails("json-big-integers"),
    "DropsNull": fails("json-null"),
    "RunsAnother": fails(
        "changed-body", "changed-query", "changed-while-running",
        conflict_leak=INCONCLUSIVE, json_number_form=FAIL, json_big_integers=FAIL, json_null=FAIL,
    ),
    "RunsAnotherOrder": fails("json-member-order", json_null=FAIL),
    "WaitsUncompared": fails("changed-while-running"),
    "ForgetsOnMismatch": fails("changed-body", changed_while_running=FAIL),
    "FailsOnMismatch": fails("changed-body", changed_path=FAIL, changed_method=FAIL, changed_while_running=FAIL),
    "RefusesOtherwise": fails("statuses"),
    "ShowsAnswer": fails("conflict-leak"),
    "TakesContentForIntent": fails("fresh-key", other_case_key=FAIL),
    # --- claims -------------------------------------------------------------------------------------------------------
    "LooksThenInserts": fails("parallel-duplicates"),
    "TakesOverTogether": fails("after-expiry"),
    "LateOwner": fails(
        "duplicates-while-running", "retry-after", "hang-up-while-running", parallel_duplicates=FAIL, after_expiry=FAIL
    ),
    "FailsOnDuplicates": fails("parallel-duplicates", "retry-after", after_expiry=FAIL),
    "RefusesDuplicates": fails("statuses"),
    "AcceptsDuplicates": fails("retry-after", parallel_duplicates=FAIL),
    "SaysNothing": Exhibit({"retry-after": UNSUPPORTED}),
    "SaysTomorrow": fails("retry-after"),
    "SaysNow": fails("retry-after"),
    "SaysSoon": fails("retry-after"),
    "RecordsAfterSending": fails("hang-up-while-running"),
    "TakesHalves": fails("upload-cut", notes=True),
    "ClaimsBeforeReading": fails("upload-cut"),
    # --- records ------------------------------------------------------------------------------------------------------
    "KeepsUnavailable": fails("server-error"),
    "KeepsThrottled": fails("throttled"),
    "BurnsKeys": fails("rejected-then-corrected"),
    "FailsAfterTheWork": fails("server-error"),
    "ReplaysAs200": fails(
        "replay", "answer-lost",
        replay_headers=INCONCLUSIVE, duplicates_while_running=FAIL,
    ),
    "ReplaysBodyOnly": fails("replay-headers"),
    "JoinsHeaders": fails("replay-headers"),
    "ReplaysAnew": fails(
        "replay", "answer-lost",
        replay_headers=INCONCLUSIVE, parallel_duplicates=FAIL, duplicates_while_running=FAIL,
        hang_up_while_running=FAIL,
    ),
    "HidesReplays": fails("replay-marker", profile="acp"),
    "MarksEverything": fails("replay-marker", fresh_key=FAIL, other_caller=FAIL),
}  # fmt: skip
"""For those that need not be killed to be found out."""

MORTAL: Final[Mapping[str, Exhibit]] = {
    "Honest": Exhibit(NOTHING),
    "NeverLetsGo": fails("crash-while-running"),
    "Forgets": fails("restart-after-answer"),
}
"""For those that are killed and started again; the trials of that are the only ones made of them."""
