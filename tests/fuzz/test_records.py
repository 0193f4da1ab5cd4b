"""What lies in stores: whatever bytes come back, they are the record, or an error that has a name."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.records import DIGEST, NOW, records
from tests.fuzz.bounded import bounded, octets, pieces, texts
from twicesafe.core.arrived import arrived
from twicesafe.core.claims import Claim
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.journal import Entry, Journal
from twicesafe.core.record import Record, StoredResponse
from twicesafe.core.values import Values
from twicesafe.errors import DefinitionChangedError, InvalidMessageError, StoreError, ValueNotKeptError
from twicesafe.stores import dynamodb_items, redis_rows
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.packing import pack_headers, packed_size, unpack_headers
from twicesafe.stores.sealing import MARK, STEPS, Sealing
from twicesafe.stores.sql import rows

KEYS = Keyring({"k": b"\7" * 32}, current="k")
SEALINGS = (Sealing(KEYS, None), Sealing(KEYS, 16), Sealing(None, 16), Sealing(None, None))

header_lines = st.lists(st.tuples(octets, octets), max_size=4).map(tuple)
responses = st.builds(
    StoredResponse, st.sampled_from([200, 201, 422]), header_lines, st.one_of(st.none(), octets, st.just(b"ab" * 400))
)
damages = st.tuples(st.integers(0, 400), st.sampled_from(["cut", "flip", "more"]), st.integers(1, 255))


def damaged(data: bytes, damage: tuple[int, str, int]) -> bytes:
    """Cut off, with one byte changed, or with one more."""
    at, how, by = damage[0] % (len(data) + 1), damage[1], damage[2]
    if how == "cut":
        return data[:at]
    if how == "more" or at == len(data):
        return data[:at] + bytes((by,)) + data[at:]
    return data[:at] + bytes((data[at] ^ by,)) + data[at + 1 :]


@bounded
@given(header_lines)
def test_header_lines_come_back_as_they_were(lines: Any) -> None:
    """R17: header lines are the same after they were packed, in their order and to the byte."""
    packed = pack_headers(lines)
    assert unpack_headers(packed) == lines
    assert packed_size(lines) == len(packed)


@bounded
@given(st.one_of(octets, st.tuples(header_lines, damages).map(lambda both: damaged(pack_headers(both[0]), both[1]))))
def test_packed_lines_are_lines_or_damaged(packed: bytes) -> None:
    """R17: bytes that are no header lines are said to be damaged; those that are, are the very ones."""
    try:
        lines = unpack_headers(packed)
    except StoreError:
        return
    assert pack_headers(lines) == packed


@bounded
@given(st.sampled_from(SEALINGS), responses, st.integers(0, 2**40))
def test_a_sealed_answer_opens_to_itself(sealing: Sealing, response: StoredResponse, epoch: int) -> None:
    """R22, R17: what was sealed is what is opened, under its own record and claim."""
    if response.headers[:1] and response.headers[0][0].startswith(MARK[:1]):
        return
    assert sealing.open(sealing.seal(response, DIGEST, epoch), DIGEST, epoch) == response


@bounded
@given(responses, damages, st.booleans())
def test_a_sealed_answer_that_was_changed_is_not_opened(response: StoredResponse, damage: Any, body: bool) -> None:
    """R22: one byte of a sealed answer changed, and it is an error with a name, and no other answer."""
    for sealing in SEALINGS[:2]:
        sealed = sealing.seal(response, DIGEST, 1)
        if body and sealed.body is not None:
            changed = sealed._replace(body=damaged(sealed.body, damage))
        else:
            changed = sealed._replace(headers=((MARK, damaged(sealed.headers[0][1], damage)),))
        try:
            opened = sealing.open(changed, DIGEST, 1)
        except StoreError:
            continue
        # The mark without a seal is the mark of what was only compressed: whoever can write that can write anything.
        assert changed == sealed or changed.headers[0][1] == b""
        assert opened.status == response.status


@bounded
@given(st.sampled_from(SEALINGS), st.sampled_from([b"", MARK]), octets, header_lines, st.one_of(st.none(), octets))
def test_whatever_is_stored_opens_or_is_an_error(
    sealing: Sealing, mark: bytes, seal: bytes, lines: Any, body: bytes | None
) -> None:
    """R22: any lines, any body, any request and any steps are opened, or refused by name."""
    stored = StoredResponse(200, ((mark, seal), *lines) if mark else lines, body)
    for open_one in (
        lambda: sealing.open(stored, DIGEST, 1),
        lambda: sealing.open_request(mark + seal, DIGEST),
        lambda: sealing.open_steps(seal + (STEPS if mark else b"") + (body or b""), DIGEST),
    ):
        try:
            open_one()
        except StoreError:
            continue


@bounded
@given(records, st.integers(0, 3), st.one_of(st.none(), damages))
def test_a_record_in_redis_is_the_record_or_damaged(record: Record, apart: int, damage: Any) -> None:
    """R10, B6: a value that was written is the record; cut, changed or longer it is a record still, or damaged."""
    claim = Claim(
        DIGEST, record.scope, record.operation, record.key_hint, GivenFingerprint(record.fingerprint), record.effects,
        record.owner, 1000, 1000, b"request" if apart else None, None,
    )  # fmt: skip
    before, after = redis_rows.taken_over(claim, record)
    value = before + record.lease_until.to_bytes(8, "big") + after
    if damage is not None:
        value = damaged(value, damage)
    try:
        kept = redis_rows.unpack(DIGEST, value, NOW)
    except StoreError:
        assert damage is not None
        return
    assert kept.record.digest == DIGEST
    if damage is None:
        assert (kept.record.scope, kept.record.operation, kept.record.key_hint) == ("user", "charge", record.key_hint)
        assert (kept.record.lease_until, kept.record.epoch) == (record.lease_until, record.epoch + 1)


@bounded
@given(octets, st.integers(0, 2**62))
def test_any_value_in_redis_is_a_record_or_damaged(value: bytes, now: int) -> None:
    """B6: whatever lies under a record's name in Redis, it is read as one or said to be damaged."""
    for found in (value, b"\1" + value):
        try:
            redis_rows.unpack(DIGEST, found, now)
        except StoreError:
            continue


@bounded
@given(st.sampled_from(["opaque", "keyed", "later"]), st.sampled_from(["claimed", "completed", "over"]), octets, octets)
def test_a_row_is_a_record_or_damaged(effects: str, state: str, headers: bytes, body: bytes) -> None:
    """B6: a row with a state, an effect or header lines that nobody wrote is said to be damaged."""
    row = (DIGEST, "user", "charge", "…", b"f" * 33, effects, state, b"o" * 16, 1, 1, 1, 1, 1, 201, headers, body,
           None, None, None)  # fmt: skip
    item = {
        "digest": {"B": DIGEST}, **{name: {"S": "x"} for name in ("scope", "operation", "key_hint")},
        "fingerprint": {"B": b"f"}, "owner": {"B": b"o"}, "effects": {"S": effects}, "state": {"S": state},
        **{name: {"N": "1"} for name in ("epoch", "created_at", "lease_until", "key_until", "body_until", "status")},
        "headers": {"B": headers}, "deflated_body": {"B": body},
    }  # fmt: skip
    for read in (lambda: rows.to_record(row), lambda: dynamodb_items.to_record(item)):
        try:
            found = read()
        except StoreError:
            continue
        assert found is not None and found.response is not None
        assert (found.effects, found.state) == (effects, state)


entries = st.lists(
    st.builds(Entry, texts.filter(bool), st.sampled_from(["step", "call"]), st.just("done"), st.just("1")), max_size=3
)


@bounded
@given(st.one_of(octets, pieces(b"\n", b"[", b"]", b'"a"', b",", b'["a","step","done",', b"1", b"{}")), texts)
def test_any_steps_are_read_or_held(data: bytes, point: str) -> None:
    """R24, I6: steps that this release cannot read are an error that holds the operation for a human."""
    try:
        journal = Journal.read(data, point)
    except DefinitionChangedError:
        return
    assert journal.point == point


@bounded
@given(st.one_of(octets, pieces(b"{", b"}", b'{"":"', b'"', b"decimal", b"datetime", b":", b",", b"[", b"]", b"1")))
def test_any_result_is_read_or_not_kept(kept: bytes) -> None:
    """R32: bytes that are no result of a function are an error with a name."""
    try:
        Values(object).decode(kept)
    except ValueNotKeptError:
        return


@bounded
@given(
    st.dictionaries(
        st.sampled_from(["ce-id", "ce-source", "ce-type", "ce_time", "content-type", "cloudEvents:id", "ce-x"]),
        st.one_of(texts, octets),
    ),
    octets,
    st.booleans(),
)
def test_any_headers_are_a_message_or_none(headers: Any, data: bytes, encoded: bool) -> None:
    """R29: what a broker brings is a message with an id, a source and a type, or refused by name."""
    try:
        message = arrived(headers, data, encoded=encoded)
    except InvalidMessageError:
        return
    assert message.id and message.source and message.type and message.data == data
