"""What the exchange decides for nearly every request, without the exchange: a generator costs more than its decisions.

A first request that claims at once and answers whole, and a replay: for these each function here gives what
core.exchange would come to, and for everything else None, which means: ask the exchange. Shells that use them start the
exchange where they were told None, with what has happened so far; that the two agree is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.policy import Policy
from twicesafe.core.record import HeaderLines
from twicesafe.core.steps import Answer, Notice

REPLAYED_NOTICE: Final = Notice("replayed")
"""What the exchange tells of a replay."""

_new: Final = tuple.__new__
_each: Final = chain.from_iterable


def plain_replay(found: Claimed | Existing, policy: Policy) -> Answer | None:
    """The answer that was recorded, where there is one: send it, and tell REPLAYED_NOTICE."""
    if type(found) is not Existing or found.verdict is not Verdict.REPLAY or policy.refuse_duplicates:
        return None
    assert found.record is not None and found.record.response is not None
    stored = found.record.response
    status, headers, body = stored
    assert body is not None
    return _new(Answer, (status, (*headers, *policy.marked), body, "replayed", None, stored))


def plain_record(
    status: int,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    entered: bool | None,  # noqa: FBT001 - as it stands in Responded
    policy: Policy,
) -> HeaderLines | None:
    """The header lines to record with an answer that came in one piece: complete with them, then send.

    The piece has to be as long as it says, and the handler must not have declared that nothing was done.
    """
    lines = dict(headers)
    if (
        entered is False
        or status in policy.unrecorded
        or lines.get(b"content-length") != b"%d" % len(body)
        or len(body) > policy.response_limit
        # Names in capitals would pass by the next line.
        or not b"".join(lines).islower()
        or not policy.forgotten.isdisjoint(lines)
        or len(b"".join(_each(headers))) > policy.header_limit
    ):
        return None
    return tuple(headers)
