"""What is decided without the exchange is what the exchange decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.records import NOW, record, standing_so
from tests.core.script import ALL, OPAQUE, name_of, play, started, won
from twicesafe.core.capture import Capture, Progress, Responded
from twicesafe.core.claims import Existing
from twicesafe.core.keys import KeyRule, KeySyntax, parse_key
from twicesafe.core.lifecycle import Standing, Verdict
from twicesafe.core.plain import REPLAYED_NOTICE, plain_record, plain_replay
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects, StoredResponse
from twicesafe.core.steps import FORWARD, Complete
from twicesafe.errors import InvalidKeyError

BODIES = st.binary(max_size=12)
NAMES = st.sampled_from(
    [b"content-type", b"location", b"x-a", b"Location", b"date", b"Date", b"set-cookie", b"SET-COOKIE", b"connection",
     b"transfer-encoding", b"x-request-id", b"content-length", b"Content-Length", b"1"]
)  # fmt: skip
LINES = st.tuples(NAMES, st.sampled_from([b"", b"a", b"3", b"x-a", b"text/event-stream", b"close"]))


@st.composite
def answers(draw: st.DrawFn) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Answers as applications make them, most with a length."""
    body = draw(BODIES)
    lines = draw(st.lists(LINES, max_size=4))
    if draw(st.booleans()):
        lines.insert(draw(st.integers(0, len(lines))), (b"content-length", b"%d" % len(body)))
    return (
        draw(st.sampled_from([200, 201, 204, 304, 307, 400, 401, 404, 405, 409, 413, 422, 429, 500, 503])),
        lines,
        body,
    )


policies = st.builds(
    Policy,
    effects=st.sampled_from(Effects),
    store_cookies=st.booleans(),
    response_limit=st.sampled_from([0, 5, 1000]),
    header_limit=st.sampled_from([0, 20, 1000]),
    repeatable=st.sampled_from([frozenset(), frozenset({409, 500})]),
)


@given(answers(), policies, st.sampled_from([None, True, False]))
def test_an_answer_is_recorded_as_the_exchange_records_it(
    answer: tuple[int, list[tuple[bytes, bytes]], bytes], policy: Policy, entered: bool | None
) -> None:
    """R15, R17, I11: where an answer is recorded without the exchange, the exchange would record the very same."""
    status, lines, body = answer
    kept = plain_record(status, lines, body, entered, policy)
    if kept is None:
        return
    capture = Capture(policy.response_limit, live=policy.effects is not Effects.TRANSACTIONAL)
    capture.start(status, lines)
    assert capture.body(body, more=False) is Progress.WHOLE and capture.whole
    played = play(
        started(policy), won(), Responded(status, capture.headers, capture.kept, entered), None
    )  # fmt: skip
    assert played.names == "Claim Run Complete"
    assert played.only(Complete).response == StoredResponse(status, kept, body)
    assert played.result is FORWARD and not played.notices


@pytest.mark.parametrize("policy", ALL, ids=name_of)
@pytest.mark.parametrize("entered", [None, True])
def test_the_usual_answers_are_plain(policy: Policy, entered: bool | None) -> None:
    """R17: what most applications answer is recorded without the exchange, line for line."""
    for status in (200, 201, 202, 400, 404, 422, 500):
        lines = ((b"content-length", b"2"), (b"content-type", b"application/json"), (b"link", b"a"), (b"link", b"b"))
        assert plain_record(status, lines, b"{}", entered, policy) == lines


@given(st.sampled_from(Standing), st.sampled_from(Verdict))
def test_a_replay_is_what_the_exchange_answers(standing: Standing, verdict: Verdict) -> None:
    """R17, I5: a replay without the exchange is the one it would send, and tells the same; all else is left to it."""
    if (standing is Standing.COMPLETED) != (verdict is Verdict.REPLAY):
        return
    found = Existing(verdict, standing_so(standing), NOW)
    answer = plain_replay(found, Policy())
    assert (answer is None) == (verdict is not Verdict.REPLAY)
    if answer is not None:
        played = play(started(OPAQUE), found)
        assert played.result == answer
        assert played.notices == [REPLAYED_NOTICE]


def test_a_won_claim_is_no_replay() -> None:
    """R10: whoever won the claim runs, whatever a lost run left behind."""
    assert plain_replay(won(), Policy()) is None
    assert plain_replay(won(record()), Policy()) is None


@given(
    st.binary(max_size=40), st.sampled_from([KeyRule(), KeyRule(KeySyntax.UUID), KeyRule(min_length=3, max_length=9)])
)
def test_a_plain_key_is_the_key(line: bytes, rule: KeyRule) -> None:
    """R4: a line that is taken for a key as it stands is the key that parsing would find."""
    if Policy(key=rule).plain_key(line):
        assert parse_key([line], rule) == line.decode("ascii")


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"8e03978e-40d5-43e8-bc93-6894a57f9324", KeyRule(KeySyntax.UUID)),
        (b"8e03978e-40d5-43e8-bc93-6894a57f9324", KeyRule()),
        (b"a", KeyRule()),
        (b"a b", KeyRule()),
        (b"~" * 255, KeyRule()),
    ],
)
def test_the_usual_keys_are_plain(line: bytes, rule: KeyRule) -> None:
    """R4: keys as most clients send them need no parsing."""
    assert Policy(key=rule).plain_key(line)


@pytest.mark.parametrize("line", [b"", b" ", b" a", b"a ", b'"a"', b"a\n", b"\xc3\xa9", b"~" * 256])
def test_what_is_no_plain_key_is_parsed(line: bytes) -> None:
    """R4: everything else is left to the parser, which strips, unquotes or refuses."""
    assert not Policy().plain_key(line)
    if line not in (b" a", b"a ", b'"a"'):
        with pytest.raises(InvalidKeyError):
            parse_key([line], KeyRule())
