"""The envelope of a message, and what becomes of one that could not be delivered."""

from __future__ import annotations

from datetime import timedelta

import pytest

from twicesafe.core.delivery import (
    LONGEST_ASKED,
    SHARDS,
    DeliveryPolicy,
    MessageState,
    Poison,
    after_failure,
    aggregate_digest,
    shard_of,
)
from twicesafe.core.message import DEFAULT_DATA_LIMIT, Message, as_headers, attributes, ce_headers, checked, rfc3339
from twicesafe.errors import ConfigurationError, InvalidMessageError

PLACED = Message("m-1", "/shop", "order.placed", "order", "o-1", b"{}")


def test_a_whole_message_is_taken_as_it_is() -> None:
    """R28: what the envelope asks for is there, so the message goes through unchanged."""
    whole = PLACED._replace(
        subject="o-1", headers=(("traceparent", "00-1-2-01"),), data=b"x" * DEFAULT_DATA_LIMIT, id="Zoë 1"
    )
    assert checked(whole) is whole


@pytest.mark.parametrize("name", ["id", "source", "type", "aggregatetype", "aggregateid", "subject", "datacontenttype"])
@pytest.mark.parametrize("text", ["", " ", "\t", " a/b", "a/b ", "a\0/b", "a/\x85b", "a/\ud800", "a/" * 200, 7, b"a/b"])
def test_texts_that_say_nothing_are_refused(name: str, text: object) -> None:
    """R28, R29: an empty id would make all messages one; what a database or a broker cannot carry is told at once."""
    with pytest.raises(InvalidMessageError, match=name):
        checked(PLACED._replace(**{name: text}))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"id": None}, "id must be a text"),
        ({"source": "not a reference"}, "URI reference"),
        ({"datacontenttype": "json"}, "media type"),
        ({"data": "text"}, "bytes"),
        ({"data": b"x" * (DEFAULT_DATA_LIMIT + 1)}, "limit"),
        ({"headers": (("Trace-Parent", "1"),)}, "name"),
        ({"headers": (("id", "1"),)}, "name"),
        ({"headers": (("a", "1"), ("a", "2"))}, "once"),
        ({"headers": (("a", "line\nbreak"),)}, "control"),
    ],
)
def test_what_is_no_cloudevent_is_refused(wrong: dict[str, object], why: str) -> None:
    """R28: the rules of CloudEvents are checked where the message is made, and the refusal is a ValueError."""
    with pytest.raises(InvalidMessageError, match=why) as refused:
        checked(PLACED._replace(**wrong))
    assert isinstance(refused.value, ValueError)


def test_header_lines_are_those_of_the_binary_mode() -> None:
    """R28: attributes become ce- lines, percent-encoded where a header could not carry them; the data stays bytes."""
    message = PLACED._replace(
        subject='50 % "off" for Zoë',
        time=rfc3339(1_700_000_000_000_001),
        headers=as_headers({"traceparent": "00-1-2-01"}),
    )
    assert ce_headers(message) == (
        ("ce-id", "m-1"),
        ("ce-source", "/shop"),
        ("ce-specversion", "1.0"),
        ("ce-type", "order.placed"),
        ("ce-subject", "50%20%25%20%22off%22%20for%20Zo%C3%AB"),
        ("ce-time", "2023-11-14T22:13:20.000001Z"),
        ("ce-partitionkey", "o-1"),
        ("ce-aggregatetype", "order"),
        ("ce-traceparent", "00-1-2-01"),
        ("content-type", "application/json"),
    )
    assert dict(attributes(message))["subject"] == '50 % "off" for Zoë'
    assert "ce-subject" not in dict(ce_headers(PLACED)) and "ce-time" not in dict(ce_headers(PLACED))


def test_aggregates_never_share_a_digest() -> None:
    """R28: type and id are joined so that no two aggregates are one, and a shard is for ever."""
    assert aggregate_digest("a", "bc") != aggregate_digest("ab", "c")
    assert shard_of(aggregate_digest("order", "o-1")) == 58
    assert {shard_of(aggregate_digest("order", f"o-{n}")) for n in range(2000)} == set(range(SHARDS))


def test_delays_grow_and_keep_their_jitter() -> None:
    """R28: each window is twice as wide as the last one, up to the longest, and is drawn from afterwards."""
    policy = DeliveryPolicy(attempts=100, first_delay=timedelta(seconds=1), longest_delay=timedelta(seconds=60))
    widest = [after_failure(policy, failures, 1.0, refused=False) for failures in (1, 2, 3, 7, 50, 99)]
    assert widest == [1_000_000, 2_000_000, 4_000_000, 60_000_000, 60_000_000, 60_000_000]
    assert after_failure(policy, 50, 0.5, refused=False) == 30_000_000
    assert after_failure(policy, 1, 0.5, refused=False, asked=90_000_000) == 90_000_000
    assert after_failure(policy, 50, 1.0, refused=False, asked=1_000_000) == 60_000_000
    assert after_failure(policy, 1, 0.5, refused=False, asked=10**15) == LONGEST_ASKED


@pytest.mark.parametrize(
    ("poison", "becomes"),
    [(Poison.PARK, MessageState.PARKED), (Poison.SKIP, MessageState.SKIPPED), (Poison.BLOCK, 300_000_000)],
)
def test_poison_is_what_failed_often_enough_or_was_refused(poison: Poison, becomes: object) -> None:
    """R28, J2: a message becomes a dead letter after its last attempt, or at once where it can never be delivered."""
    policy = DeliveryPolicy(attempts=10, poison=poison)
    assert isinstance(after_failure(policy, 9, 1.0, refused=False), int)
    assert after_failure(policy, 10, 1.0, refused=False) == becomes
    assert after_failure(policy, 1, 0.0, refused=True) == becomes


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"attempts": True}, {"first_delay": timedelta(0)}, {"longest_delay": 3}, {"poison": "x"}]
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    """R28: a policy that cannot be meant is refused where it is made."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        DeliveryPolicy(**wrong)  # type: ignore[arg-type]
