"""Answers to duplicates that the application makes anew, under ASGI and on routes of FastAPI."""

import asyncio
from typing import Annotated, Any

import pytest
from fastapi import Depends, Request
from fastapi.responses import JSONResponse, StreamingResponse

from tests.shells.probe import Probe, Wire, post
from tests.shells.rig import Rig
from tests.shells.service import Bank, Service, insert
from twicesafe import JsonMember, Operation, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.errors import ConfigurationError

LOCATION = (b"location", b"/charges/1")
LARGE = b"x" * 100
SMALL_LIMIT = Policy(response_limit=10)


def rig(policy: Policy, rebuild: Any, body: bytes | None = None) -> Rig:
    """A service whose operation has this hook."""
    probe = Probe(headers=(LOCATION,), body=body)
    return Rig(probe=probe, operation=Operation("charge", policy, rebuild))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_answer_that_was_too_large_is_rebuilt(*, asynchronous: bool) -> None:
    """R18, A4: one effect; the retry gets all of it, made anew from the stored head, and marked."""
    seen = []

    def rebuild(stored: StoredResponse, scope: Any) -> Any:
        seen.append((stored, scope["path"]))
        answer = StoredResponse(stored.status, (LOCATION,), LARGE)
        return asyncio.sleep(0, answer) if asynchronous else answer

    service = rig(SMALL_LIMIT, rebuild, LARGE)

    async def trial() -> None:
        first, again = [await post(service.safe) for _ in range(2)]
        assert service.effects == 1
        assert (again.status, again.body, again.header(b"location")) == (201, first.body, b"/charges/1")
        assert again.replayed and not first.replayed
        assert seen == [(StoredResponse(201, (LOCATION,), None), "/jobs")]

    asyncio.run(trial())


def test_a_duplicate_may_get_the_state_of_today() -> None:
    """R19: by choice the answer is made anew though the first one is kept; another request is refused before."""
    balance = [10]

    def rebuild(stored: StoredResponse, scope: Any) -> StoredResponse:
        return StoredResponse(200, (), b"%d" % balance[0])

    service = rig(Policy(duplicates="rebuilt"), rebuild)

    async def trial() -> None:
        first = await post(service.safe)
        balance[0] = 7
        again = await post(service.safe)
        other = await post(service.safe, body=b"other")
        assert service.effects == 1
        assert (first.status, again.status, again.body, again.replayed) == (201, 200, b"7", True)
        assert (other.status, other.kind) == (422, "key-reused")

    asyncio.run(trial())


def raises(stored: StoredResponse, scope: Any) -> Any:
    """Fails."""
    raise ZeroDivisionError


async def waits(stored: StoredResponse, scope: Any) -> Any:
    """Waits for something that somebody cancels."""
    waited_for = asyncio.get_running_loop().create_future()
    waited_for.cancel()
    await waited_for


@pytest.mark.parametrize("rebuild", [raises, waits])
@pytest.mark.parametrize("kept", [False, True])
def test_a_hook_that_fails_never_leads_to_a_second_run(rebuild: Any, *, kept: bool) -> None:
    """R18, R44: what is stored is sent, or that it is done and not kept; the observer is told, loudly."""
    policy = Policy(duplicates="rebuilt", response_limit=1000 if kept else 10)
    service = rig(policy, rebuild, LARGE)

    async def trial() -> None:
        await post(service.safe)
        again = await post(service.safe)
        assert service.effects == 1
        assert again.status == 201 and again.replayed
        assert again.body == LARGE if kept else again.kind == "result-not-kept"
        assert [event.loud for event in service.events if event.name == "rebuild.failed"] == [True]

    asyncio.run(trial())


def test_a_duplicate_that_is_cancelled_in_its_hook_ends() -> None:
    """R14: whose own task is cancelled is not answered instead; the record stays as it was."""

    async def trial() -> None:
        reached = asyncio.Event()

        async def hangs(stored: StoredResponse, scope: Any) -> Any:
            reached.set()
            await asyncio.Event().wait()

        service = rig(Policy(duplicates="rebuilt"), hangs, LARGE)
        await post(service.safe)
        duplicate = asyncio.ensure_future(post(service.safe))
        await reached.wait()
        (running,) = service.safe._shared.running
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await duplicate
        assert service.effects == 1
        assert "rebuild.failed" not in service.told

    asyncio.run(trial())


def charges(rebuild: Any, **settings: Any) -> Service:
    """`POST /jobs` of FastAPI, with a hook."""
    served = Service()

    @served.app.post("/jobs", status_code=201)
    @served.safe.operation(rebuild=rebuild, **settings)
    async def work() -> Any:
        return JSONResponse(served.append(), 201, {"Location": "/charges/1"})

    return served


async def by_value(stored: StoredResponse, request: Request) -> Any:
    """The application's own state, by what the first answer pointed to."""
    return {"at": dict(stored.headers)[b"location"].decode(), "path": request.url.path}


def by_response(stored: StoredResponse, request: Request) -> Any:
    """With a status of its own."""
    return JSONResponse({"at": "/charges/1", "path": request.url.path}, 200)


@pytest.mark.parametrize(("rebuild", "status"), [(by_value, 201), (by_response, 200)])
def test_a_route_names_its_hook(rebuild: Any, status: int) -> None:
    """R18, R19: blocking or not, it gives what an endpoint may give, and sees FastAPI's own request."""
    served = charges(rebuild, response_limit=1)

    async def trial() -> None:
        first, again = [await served.post() for _ in range(2)]
        assert served.ledger == [1]
        assert (first.status, again.status) == (201, status)
        assert again.body == b'{"at":"/charges/1","path":"/jobs"}' and again.replayed

    asyncio.run(trial())


@pytest.mark.parametrize("given", [None, StreamingResponse(iter([b"a"]))])
def test_a_route_falls_back_on_what_is_stored(given: Any) -> None:
    """R18: where the hook has nothing to give, or something that cannot be sent whole."""
    served = charges(lambda stored, request: given, duplicates="rebuilt")

    async def trial() -> None:
        first, again = [await served.post() for _ in range(2)]
        assert served.ledger == [1]
        assert (again.body, again.replayed) == (first.body, True)

    asyncio.run(trial())


def test_a_transactional_route_is_rebuilt_outside_of_its_transaction(tmp_path: Any) -> None:
    """R18, R23: one row; the hook runs when the claim is over, also where a dependency asked for the connection."""

    async def trial() -> None:
        async with Bank(tmp_path) as served:

            async def rebuild(stored: StoredResponse, request: Request) -> Any:
                return {"rows": served.rows()}

            @served.app.post("/jobs")
            @served.safe.operation(effects="transactional", response_limit=1, rebuild=rebuild)
            async def work(db: Annotated[Any, Depends(served.safe.connection)]) -> Any:
                await insert(db, 5)
                return {"n": 1}

            _, again = [await served.post() for _ in range(2)]
            assert served.rows() == [5]
            assert again.body == b'{"rows":[5]}' and again.replayed

    asyncio.run(trial())


def test_a_look_up_of_an_operation_goes_by_its_contract() -> None:
    """R7: keys that belong to an operation are looked up under its name, which has to be one."""
    served = charges(None, per_operation_keys=True)
    served.app.get("/keys")(served.safe.lookup("work"))
    with pytest.raises(ConfigurationError, match="no operation is called 'wrok'"):
        served.safe.lookup("wrok")

    async def trial() -> None:
        first = await served.post()
        found = await served.post("/keys", method="GET")
        assert (served.ledger, found.body, found.replayed) == ([1], first.body, True)

    asyncio.run(trial())


def test_a_look_up_whose_caller_hangs_up_ends_quietly() -> None:
    """H1: a body that may hold the key and never becomes whole is nobody's error."""
    served = Service(policy=Policy(fields=(JsonMember("key"),)))
    served.app.get("/keys")(served.safe.lookup())

    async def trial() -> None:
        found = await Wire(served.app, method="GET", path="/keys", headers=[(b"x-user", b"ann")], cut=True).end()
        assert (found.raised, found.kind) == (None, "body-incomplete")

    asyncio.run(trial())


def test_fastapi_has_a_look_up_of_its_own() -> None:
    """R22, I7: it is an endpoint under the application's own authentication, and it may close keys."""
    served = charges(None)
    closing = served.safe.lookup(closes=True)
    served.app.get("/keys")(closing)
    served.app.delete("/keys")(closing)
    served.app.delete("/look")(served.safe.lookup())

    async def trial() -> None:
        assert (await served.post("/keys", method="GET", user=None)).status == 401
        assert (await served.post("/keys", method="GET")).problem["final"] is False
        first = await served.post()
        found = await served.post("/keys", method="GET")
        assert (found.status, found.body, found.replayed) == (201, first.body, True)
        assert found.header(b"idempotency-key-retention") == b"86400"
        assert (await served.post("/keys", method="GET", user="bob")).kind == "key-unknown"
        assert (await served.post("/keys", method="GET", key=None)).kind == "key-missing"
        assert (await served.post("/look", method="DELETE")).status == 405
        described = served.app.openapi()["paths"]["/keys"]["get"]
        assert [one["required"] for one in described["parameters"] if one["name"] == "Idempotency-Key"] == [True]
        assert {"200", "400", "404", "409"} <= described["responses"].keys()
        assert (await served.post("/keys", method="DELETE", key="k-0002-0002-0002")).problem["final"] is True
        assert (await served.post(key="k-0002-0002-0002")).status == 422
        assert served.ledger == [1]

    asyncio.run(trial())
