"""Keys that stand elsewhere than in a header, under ASGI."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from tests.shells.probe import Wire, post
from tests.shells.rig import Rig
from twicesafe.core.carriers import Field, FormField, JsonMember, QueryParameter
from twicesafe.core.policy import Policy

K = "k-0001-0001-0001"
NAME = "idempotency_key"
EVERYWHERE = Policy(fields=(JsonMember(NAME), FormField(NAME), QueryParameter(NAME)))
JSON = json.dumps({"amount": 1, NAME: K}).encode()
URLENCODED = f"amount=1&{NAME}={K}".encode()
MULTIPART = (
    f'--b\r\nContent-Disposition: form-data; name="{NAME}"\r\n\r\n{K}\r\n'
    '--b\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n'
    "Content-Type: application/octet-stream\r\n\r\n\0\1\2\r\n--b--\r\n"
).encode()


def typed(content_type: str, body: bytes, **more: Any) -> dict[str, Any]:
    """A request without the header."""
    return {"key": None, "headers": ((b"content-type", content_type.encode()),), "body": body, **more}


CARRIED = {
    "json": typed("application/json", JSON),
    "json of a vendor": typed("application/vnd.shop+json; charset=utf-8", JSON),
    "urlencoded": typed("application/x-www-form-urlencoded", URLENCODED),
    "multipart": typed("multipart/form-data; boundary=b", MULTIPART),
    "query": typed("text/plain", b"1", query=f"{NAME}={K}".encode()),
    "in pieces": typed("application/json", b"", parts=[JSON[:5], JSON[5:20], b"", JSON[20:]]),
    "compressed": {
        "key": None,
        "headers": ((b"content-type", b"application/json"), (b"content-encoding", b"gzip")),
        "body": gzip.compress(JSON, mtime=0),
    },
}


@pytest.mark.parametrize("request_of", CARRIED.values(), ids=CARRIED)
def test_a_key_that_the_body_or_the_query_carries_makes_it_happen_once(request_of: dict[str, Any]) -> None:
    """R5, R11, H1: one effect and a replay, and the application reads exactly the bytes that were sent."""
    rig = Rig(EVERYWHERE)

    async def trial() -> None:
        first, again = [await post(rig.safe, **request_of) for _ in range(2)]
        assert rig.effects == 1
        assert (first.status, again.status, again.body) == (201, 201, first.body)
        assert again.replayed and not first.replayed
        sent = b"".join(request_of.get("parts", ())) or request_of["body"]
        assert rig.probe.ledger == [sent]

    asyncio.run(trial())


def test_the_header_stands_beside_the_fields() -> None:
    """R4, R5: the header and a field that name one key name one intent; two that differ are refused before any work."""
    rig = Rig(EVERYWHERE)

    async def trial() -> None:
        assert (await post(rig.safe, body=JSON)).status == 201
        assert (await post(rig.safe, key=f'"{K}"', body=JSON)).replayed
        other = await post(rig.safe, key="k-0002-0002-0002", body=JSON)
        assert (other.status, other.kind) == (400, "key-invalid")
        assert rig.effects == 1

    asyncio.run(trial())


@pytest.mark.parametrize("carried", [CARRIED["json"], CARRIED["urlencoded"], CARRIED["query"]])
def test_a_policy_may_do_without_a_header(carried: dict[str, Any]) -> None:
    """R5: where only fields carry keys, the standard header means nothing."""
    fields: tuple[Field, ...] = EVERYWHERE.fields
    rig = Rig(Policy(header="", fields=fields))

    async def trial() -> None:
        for _ in range(2):
            await post(
                rig.safe, **carried | {"key": None, "headers": (*carried["headers"], (b"idempotency-key", b"x"))}
            )
        assert rig.effects == 1

    asyncio.run(trial())


@pytest.mark.parametrize(
    ("sent", "parts"),
    [(b'{"amount": 1}', None), (b"", None), (b"no json", None), (b'{"amount": 1}', [b'{"amo', b'unt": 1}'])],
)
def test_a_body_without_a_key_passes_on_untouched(sent: bytes, parts: list[bytes] | None) -> None:
    """R3, R5, H1: it was read for its key, and the application gets every message of it; nobody is asked who calls."""
    asked = []
    rig = Rig(EVERYWHERE, scope=lambda scope: asked.append(scope))

    async def trial() -> None:
        for _ in range(2):
            reply = await post(rig.safe, **typed("application/json", sent, parts=parts))
            assert reply.status == 201 and b"idempotency-key-retention" not in dict(reply.lines)
        assert rig.probe.seen == [sent, sent]
        assert [message["body"] for message in rig.probe.messages] == (parts or [sent]) * 2
        assert not asked and not rig.events

    asyncio.run(trial())


def test_a_body_that_cannot_carry_a_key_is_not_held_back() -> None:
    """R5, R9: an upload of another type flows on while it comes, however large it is."""
    rig = Rig(EVERYWHERE.but(body_limit=10))

    async def trial() -> None:
        wire = Wire(rig.safe, **typed("application/octet-stream", b"", parts=[b"0123456789"], cut=True)).start()
        with pytest.raises(AssertionError, match="disconnect"):
            raise (await wire.end()).raised or ValueError
        assert [message["type"] for message in rig.probe.messages] == ["http.request", "http.disconnect"]

    asyncio.run(trial())


def test_what_is_read_for_its_key_has_a_limit() -> None:
    """R9: 413 before anything is claimed, and for the policy's methods only."""
    rig = Rig(EVERYWHERE.but(body_limit=10))

    async def trial() -> None:
        reply = await post(rig.safe, **CARRIED["json"])
        assert (reply.status, reply.kind) == (413, "body-too-large")
        assert rig.effects == 0
        assert (await post(rig.safe, method="PUT", **CARRIED["json"])).status == 201

    asyncio.run(trial())


def test_an_upload_that_is_cut_carries_no_key() -> None:
    """R9, H1: a body that stops midway is nobody's: nothing runs, nothing is answered, and the whole one runs."""
    rig = Rig(EVERYWHERE)

    async def trial() -> None:
        cut = await Wire(rig.safe, **CARRIED["json"] | {"parts": [JSON[:30]], "cut": True}).end()
        assert not cut.messages and not rig.probe.entered
        assert (await post(rig.safe, **CARRIED["json"])).status == 201
        assert rig.effects == 1

    asyncio.run(trial())


@pytest.mark.parametrize(
    "body", [b'{"idempotency_key": ""}', b'{"idempotency_key": 7}', b'{"idempotency_key": "\xc3\xa4"}']
)
def test_a_field_that_is_no_key_is_refused(body: bytes) -> None:
    """R4, G5, G6: 400 from every carrier alike, and an empty key is none only by choice."""
    rig = Rig(EVERYWHERE)

    async def trial() -> None:
        reply = await post(rig.safe, **typed("application/json", body))
        assert (reply.status, reply.kind, rig.effects) == (400, "key-invalid", 0)
        lenient = Rig(EVERYWHERE.but(empty_is_none=True))
        for _ in range(2):
            await post(lenient.safe, **typed("application/json", b'{"idempotency_key": ""}'))
        assert lenient.effects == 2

    asyncio.run(trial())


def test_a_required_key_may_stand_in_any_of_its_places() -> None:
    """R3, R5: missing in all of them it is 400."""
    rig = Rig(EVERYWHERE.but(required=True))

    async def trial() -> None:
        refused = await post(rig.safe, **typed("application/json", b"{}"))
        assert (refused.status, refused.kind, rig.effects) == (400, "key-missing", 0)
        assert (await post(rig.safe, **CARRIED["urlencoded"])).status == 201

    asyncio.run(trial())


def test_a_key_that_came_by_a_field_is_echoed_by_choice() -> None:
    """R5: an answer names the key that it was dealt with under, wherever that stood; a replay does too."""
    rig = Rig(EVERYWHERE.but(echo_key=True))

    async def trial() -> None:
        for _ in range(2):
            assert (await post(rig.safe, **CARRIED["json"])).header(b"idempotency-key") == K.encode()
        assert rig.effects == 1

    asyncio.run(trial())
