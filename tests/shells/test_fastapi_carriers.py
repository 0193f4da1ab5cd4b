"""Keys that stand elsewhere than in a header, on routes of FastAPI."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from fastapi import File, Form, Request, UploadFile
from pydantic import BaseModel

from tests.shells.service import K, Service, service
from tests.shells.test_asgi_carriers import CARRIED, EVERYWHERE, MULTIPART, NAME, typed
from twicesafe.core.carriers import FormField, JsonMember


class Payment(BaseModel):
    amount: int
    idempotency_key: str | None = None


def payments(**settings: Any) -> Service:
    """An endpoint for each way in which a body is read, all under one contract each."""
    served = Service(policy=EVERYWHERE)
    operation = served.safe.operation

    @served.app.post("/json", status_code=201)
    @operation(**settings)
    async def as_json(body: Payment) -> dict[str, int]:
        return served.append(body.amount)

    @served.app.post("/form", status_code=201)
    @operation(**settings)
    async def as_form(amount: Annotated[int, Form()], file: Annotated[UploadFile | None, File()] = None) -> Any:
        return served.append((amount, await file.read() if file else None))

    @served.app.post("/raw", status_code=201)
    @operation(**settings)
    async def as_raw(request: Request) -> Any:
        return served.append(await request.body())

    @served.app.post("/unread", status_code=201)
    @operation(**settings)
    async def as_nothing() -> Any:
        return served.append()

    return served


FORM = MULTIPART.replace(b"--b--", b'--b\r\nContent-Disposition: form-data; name="amount"\r\n\r\n2\r\n--b--')


@pytest.mark.parametrize(
    ("path", "sent", "effect"),
    [
        ("/json", CARRIED["json"], 1),
        ("/json", CARRIED["in pieces"], 1),
        ("/form", CARRIED["urlencoded"], (1, None)),
        ("/form", typed("multipart/form-data; boundary=b", FORM), (2, b"\0\1\2")),
        ("/raw", CARRIED["multipart"], MULTIPART),
        ("/raw", CARRIED["query"], b"1"),
        ("/unread", CARRIED["json"], 1),
    ],
)
def test_the_key_is_found_however_the_endpoint_reads_its_body(path: str, sent: dict[str, Any], effect: Any) -> None:
    """R5, R22: read by the framework or by nobody, the body carries the key; a stranger's carries none that counts."""
    served = payments()

    async def trial() -> None:
        assert (await served.post(path, user=None, **sent)).status == 401
        first, again = [await served.post(path, **sent) for _ in range(2)]
        assert served.ledger == [effect]
        assert (first.status, again.status, again.body) == (201, 201, first.body)
        assert again.replayed

    asyncio.run(trial())


def test_a_body_without_a_key_runs_each_time() -> None:
    """R3, R5: nothing is stored of it."""
    served = payments()

    async def trial() -> None:
        for _ in range(2):
            assert (await served.post("/json", **typed("application/json", b'{"amount": 3}'))).status == 201
        assert served.ledger == [3, 3] and await served.state() is None

    asyncio.run(trial())


def test_operations_of_one_application_look_in_different_places() -> None:
    """R5: what carries a key for one operation is plain data for another."""
    served = Service()
    for path, fields in (("/member", (JsonMember(NAME),)), ("/field", (FormField(NAME),)), ("/header", ())):

        @served.app.post(path)
        @served.safe.operation(name=path, fields=fields)
        async def work(request: Request) -> Any:
            return served.append(request.url.path)

    async def trial() -> None:
        for path in ("/member", "/field", "/header"):
            for _ in range(2):
                await served.post(path, **CARRIED["json"])
        assert served.ledger == ["/member", "/field", "/field", "/header", "/header"]

    asyncio.run(trial())


def test_the_document_says_where_keys_stand() -> None:
    """R5, R20: the query's parameter is documented as one, members and form fields by their names, for machines too."""
    document = payments().app.openapi()["paths"]["/json"]["post"]
    assert {(one["in"], one["name"], one["required"]) for one in document["parameters"]} >= {
        ("header", "Idempotency-Key", False),
        ("query", NAME, False),
    }
    assert document["x-idempotency"]["fields"] == [
        {"in": "json", "name": NAME},
        {"in": "form", "name": NAME},
        {"in": "query", "name": NAME},
    ]
    only = service(header="", fields=(JsonMember(NAME),), required=True).app.openapi()["paths"]["/jobs"]["post"]
    assert not [one for one in only.get("parameters", ()) if one["name"] == "Idempotency-Key"]
    assert (only["x-idempotency"]["header"], only["x-idempotency"]["required"]) == (None, True)


def test_answers_announce_how_long_a_key_is_remembered() -> None:
    """R20: the header is on answers and replays, and documented with each of them."""
    served = service()

    async def trial() -> None:
        for _ in range(2):
            assert (await served.post()).header(b"idempotency-key-retention") == b"86400"
        refused = await served.post(body=json.dumps({"amount": 2}).encode())
        assert (refused.status, refused.header(b"idempotency-key-retention")) == (422, b"86400")
        assert served.ledger == [1] and await served.state(K) is not None

    asyncio.run(trial())
    responses = served.app.openapi()["paths"]["/jobs"]["post"]["responses"]
    assert {"Idempotent-Replayed", "Idempotency-Key-Retention"} <= responses["201"]["headers"].keys()
    other = service(marker="X-Again", retention_header="").app.openapi()["paths"]["/jobs"]["post"]["responses"]
    assert "X-Again" in other["201"]["headers"] and "Idempotency-Key-Retention" not in other["201"]["headers"]
