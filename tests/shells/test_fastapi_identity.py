"""Which requests to a FastAPI route are one intent: whose key it is, how it is written, what was asked for."""

import asyncio
from datetime import timedelta
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tests.shells.service import K, Service, Work, run, service
from twicesafe import JSON, PUBLIC, FingerprintRule, KeyRule, KeySyntax, Policy
from twicesafe.asgi import current
from twicesafe.errors import ConfigurationError
from twicesafe.fastapi import Idempotency


def test_callers_do_not_share_keys():
    """G1, R6, I7: the same key and body of another user is another intent."""

    async def trial():
        served = service()
        replies = [await served.post(user=user) for user in ("ann", "bob", "ann")]
        assert served.ledger == [1, 1]
        assert [reply.body for reply in replies] == [b'{"n":1}', b'{"n":2}', b'{"n":1}']
        assert [reply.replayed for reply in replies] == [False, False, True]

    run(trial())


def test_a_new_login_is_the_same_caller():
    """R6, F5: another token of the same user is answered with the first answer."""

    async def trial():
        bearer = HTTPBearer()
        users = {"t1": "ann", "t2": "ann"}

        async def user(token: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]) -> str:
            return users[token.credentials]

        served = Service(scope=user)

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            return served.append()

        for token in (b"t1", b"t2"):
            reply = await served.post(headers=[(b"authorization", b"Bearer " + token)])
        assert served.ledger == [1]
        assert reply.replayed

    run(trial())


def test_a_caller_who_cannot_be_named_is_refused():
    """G1, R6: a scope that gives None, or an empty one, claims nothing: 403."""

    async def trial():
        names = iter([None, ""])

        def nobody() -> str | None:
            return next(names)

        served = Service(scope=nobody)

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            return served.append()

        for _ in range(2):
            refused = await served.post()
            assert (served.ledger, len(served.store)) == ([], 0)
            assert (refused.status, refused.kind) == (403, "caller-unknown")

    run(trial())


def test_a_scope_that_is_no_text_is_a_fault_of_the_server():
    """R6: an identity of another type runs nothing, and the error says what to return."""

    async def trial():
        served = Service(scope=lambda: {"id": 1})

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            return served.append()

        failed = await served.post(raises=ConfigurationError)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert "must give a str" in str(failed.raised)

    run(trial())


def test_one_application_may_have_two_kinds_of_callers():
    """R6: a public operation beside those of users, each with its own Idempotency, on one application."""

    async def trial():
        served = service()
        public = Idempotency(served.app, served.store, scope=PUBLIC)

        @served.app.post("/hook")
        @public.operation(required=True)
        async def hook() -> dict[str, int]:
            return served.append("hook")

        for _ in range(2):
            await served.post("/hook", user=None, key="hook-000000000001")
            await served.post()
        assert served.ledger == ["hook", 1]
        assert (await served.post(user=None)).status == 401

    run(trial())


@pytest.mark.parametrize("required", [False, True])
def test_a_missing_key_passes_or_is_demanded(required):
    """R3, G6: without a key the endpoint runs each time, or 400 where the operation requires one; nothing is stored."""

    async def trial():
        served = service(required=required)
        replies = [await served.post(key=None) for _ in range(3)]
        assert served.ledger == ([] if required else [1, 1, 1])
        assert len(served.store) == 0
        assert {reply.status for reply in replies} == {400 if required else 201}
        if required:
            assert replies[0].kind == "key-missing"

    run(trial())


@pytest.mark.parametrize("key", [b"", b"  ", b"x" * 256, b"a\xffb", b'"open'])
def test_a_malformed_key_is_refused(key):
    """R4, G5: 400 before anything is looked up."""

    async def trial():
        served = service()
        refused = await served.post(key=key)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert (refused.status, refused.kind) == (400, "key-invalid")

    run(trial())


def test_settings_of_a_policy_hold_on_the_route():
    """R2, R4, R5, R8: the header's name, the key's format, the fingerprint and the method are each operation's own."""

    async def trial():
        served = Service()
        strict = Policy(
            header="X-Request-Key", key=KeyRule(KeySyntax.UUID), fingerprint=FingerprintRule(JSON), methods={"PUT"}
        )

        @served.app.put("/jobs")
        @served.safe.operation(strict, required=True)
        async def work(body: Work) -> dict[str, int]:
            return served.append(body.amount)

        uuid = b"8e03978e-40d5-43e8-bc93-6894a57f9324"
        assert (await served.post(method="PUT")).kind == "key-missing"
        assert (await served.post(method="PUT", headers=[(b"x-request-key", b"no-uuid")])).kind == "key-invalid"
        for body in (b'{"amount": 5}', b'{ "amount":5}'):
            reply = await served.post(method="PUT", key=None, body=body, headers=[(b"x-request-key", uuid)])
        assert served.ledger == [5]
        assert reply.replayed

    run(trial())


@pytest.mark.parametrize("while_running", [False, True])
def test_a_key_with_another_body_is_refused(while_running):
    """I4, F6, F8: one byte of the body changed: 422, while the first runs and after; the first is still replayed."""

    async def trial():
        served = Service()
        waiting, go = asyncio.Event(), asyncio.Event()

        @served.app.post("/jobs")
        @served.safe.operation(body_limit=100_000)
        async def work(body: dict[str, str]) -> dict[str, int]:
            waiting.set()
            await go.wait()
            return served.append(body["text"][-1])

        @served.app.post("/small")
        @served.safe.operation(body_limit=10)
        async def small() -> None: ...

        first, other = (b'{"text": "' + b"x" * 90_000 + last + b'"}' for last in (b"a", b"b"))
        running = asyncio.ensure_future(served.post(parts=[first[:500], first[500:]]))
        await waiting.wait()
        if not while_running:
            go.set()
            await running
        refused = await served.post(body=other)
        go.set()
        await running
        assert served.ledger == ["a"]
        assert (refused.status, refused.kind) == (422, "key-reused")
        assert (await served.post(body=first)).replayed
        assert served.ledger == ["a"]

    run(trial())


def test_a_key_of_one_operation_is_refused_by_another():
    """G2, R7, I4: another route, another path parameter, a mounted route of the same name: never the first answer."""

    async def trial():
        served = Service()
        inside = FastAPI()
        mounted = Idempotency(inside, served.store, scope=served.user)

        @served.app.post("/tickets/{number}")
        @served.safe.operation()
        async def ticket(number: int) -> dict[str, int]:
            return served.append(number)

        @served.app.delete("/tickets/{number}")
        @served.safe.operation(methods={"DELETE"})
        async def drop(number: int) -> dict[str, int]:
            return served.append(-number)

        @inside.post("/tickets/{number}")
        @mounted.operation()
        async def inner(number: int) -> dict[str, int]:
            return served.append(number)

        served.app.mount("/inside", inside)
        await served.post("/tickets/1")
        others = [
            await served.post("/tickets/2"),
            await served.post("/tickets/1", method="DELETE"),
            await served.post("/inside/tickets/1"),
        ]
        assert served.ledger == [1]
        assert [other.kind for other in others] == ["key-reused"] * 3
        assert (await served.post("/tickets/1")).replayed
        assert (await served.post("/inside/tickets/1", key="another-key-00001")).body == b'{"n":2}'

    run(trial())


def test_routes_without_a_contract_are_left_alone():
    """R2, R3: a key sent to a route that is no operation changes nothing, nor does a key sent with GET."""

    async def trial():
        served = service()

        @served.app.post("/plain")
        async def plain(request: Request) -> dict[str, int]:
            with pytest.raises(LookupError):
                current(request.scope)
            return served.append(await request.body())

        @served.app.get("/jobs")
        async def read() -> dict[str, int]:
            return served.append("read")

        for _ in range(2):
            await served.post("/plain", parts=[b"a", b"b"])
            await served.post(method="GET")
        assert served.ledger == [b"ab", "read"] * 2
        assert len(served.store) == 0

    run(trial())


def test_a_preflight_never_touches_the_store():
    """G8: an OPTIONS request that carries a key is CORS's; it claims nothing, and a page may read the marker."""

    async def trial():
        served = service()
        served.app.add_middleware(
            CORSMiddleware,
            allow_origins=["https://shop.example"],
            allow_methods=["POST"],
            allow_headers=["Idempotency-Key", "X-User"],
            expose_headers=["Idempotent-Replayed", "Retry-After"],
        )
        origin = (b"origin", b"https://shop.example")
        asked = [origin, (b"access-control-request-method", b"POST"), (b"access-control-request-headers", b"x-user")]
        preflight = await served.post(method="OPTIONS", headers=asked)
        assert (served.ledger, len(served.store)) == ([], 0)
        assert preflight.status == 200
        for _ in range(2):
            reply = await served.post(headers=[origin, (b"content-type", b"application/json")])
        assert served.ledger == [1]
        assert reply.replayed
        assert reply.header(b"access-control-allow-origin") == b"https://shop.example"
        assert b"Idempotent-Replayed" in (reply.header(b"access-control-expose-headers") or b"")

    run(trial())


def test_after_the_retention_the_key_is_new():
    """R20, C4: the policy's retention holds; past it the same key runs again, with nothing having swept."""

    async def trial():
        served = service(key_retention=timedelta(hours=2), body_retention=timedelta(hours=1))
        await served.post()
        served.now += 90 * 60 * 1_000_000
        gone = await served.post()
        assert served.ledger == [1]
        assert (gone.status, gone.kind) == (201, "result-not-kept")
        served.now += 31 * 60 * 1_000_000
        assert (await served.post()).body == b'{"n":2}'
        assert served.ledger == [1, 1]

    run(trial())


def test_httpx_over_the_application():
    """R11: the same over httpx's own transport, with the key quoted the second time (R4)."""

    async def trial():
        served = service()
        transport = httpx.ASGITransport(served.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers={"x-user": "ann"}) as client:
            first = await client.post("/jobs", json={"amount": 3}, headers={"Idempotency-Key": K})
            second = await client.post("/jobs", json={"amount": 3}, headers={"Idempotency-Key": f'"{K}"'})
        assert served.ledger == [3]
        assert first.json() == second.json() == {"n": 1}
        assert second.headers["idempotent-replayed"] == "true"

    run(trial())


def test_the_callers_dependency_is_resolved_once_and_may_be_overridden():
    """R6: an endpoint that asks for the caller itself shares the answer; what a test puts in its place counts."""

    async def trial():
        served = Service()

        @served.app.post("/jobs", status_code=201)
        @served.safe.operation()
        async def work(body: Work, who: Annotated[str, Depends(served.user)]) -> dict[str, str]:
            served.append(who)
            return {"who": who}

        for user in ("ann", "bob", "ann"):
            reply = await served.post(user=user)
        assert served.ledger == ["ann", "bob"]
        assert reply.replayed and served.authenticated == 3
        served.app.dependency_overrides[served.user] = lambda: "eve"
        await served.post(user="ann")
        assert served.ledger == ["ann", "bob", "eve"]

    run(trial())
