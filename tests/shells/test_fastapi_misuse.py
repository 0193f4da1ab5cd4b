"""Mistakes that can be seen are refused where they are made, before anything is served."""

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.testclient import TestClient
from starlette.applications import Starlette

from tests.shells.service import Bank, Service, insert, run, start
from twicesafe import PUBLIC, Policy
from twicesafe.errors import ConfigurationError
from twicesafe.fastapi import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore


def who() -> str:
    return "ann"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"scope": None}, id="no scope"),
        pytest.param({"scope": "ann"}, id="a name"),
        pytest.param({"scope": Depends()}, id="an empty dependency"),
        pytest.param({"store": MemoryStore()}, id="a blocking store"),
        pytest.param({"app": APIRouter()}, id="a router"),
        pytest.param({"app": Starlette()}, id="another framework"),
    ],
)
def test_what_it_is_made_of(wrong):
    """R6: there is no scope by default, nor by mistake; store and application are of the right kind."""
    made = {"app": FastAPI(), "store": AsyncMemoryStore(), "scope": who, **wrong}
    with pytest.raises(ConfigurationError):
        Idempotency(made.pop("app"), made.pop("store"), **made)


def test_the_scope_is_a_required_argument():
    """R6: forgetting it is no choice."""
    with pytest.raises(TypeError, match="scope"):
        Idempotency(FastAPI(), AsyncMemoryStore())


@pytest.mark.parametrize("kind", [int, uuid.UUID, dict])
def test_a_scope_that_says_it_gives_no_text(kind):
    """R6: a dependency whose annotation is no `str` is refused when it is passed."""

    def identity():
        return kind()

    identity.__annotations__["return"] = kind
    with pytest.raises(ConfigurationError, match=kind.__name__):
        Idempotency(FastAPI(), AsyncMemoryStore(), scope=identity)


def test_an_application_that_serves_already():
    """House: the middleware would come too late."""
    app = FastAPI()
    with TestClient(app), pytest.raises(ConfigurationError, match="before"):
        Idempotency(app, AsyncMemoryStore(), scope=who)


def test_parentheses_are_forgotten():
    """House: `@safe.operation` without parentheses says what to write."""
    served = Service()
    with pytest.raises(ConfigurationError, match="parentheses"):

        @served.safe.operation
        async def work() -> None: ...


@pytest.mark.parametrize("settings", [{"effects": "magic"}, {"header": ""}, {"released": 3}, {"body_limit": -1}])
def test_a_wrong_setting(settings):
    """House: settings are checked when the operation is made."""
    served = Service()
    with pytest.raises((ConfigurationError, TypeError)):
        served.safe.operation(**settings)


def test_a_name_used_twice():
    """R7, R21: two operations of one name could not be told apart by whoever looks after them."""
    served = Service()

    @served.safe.operation()
    async def work() -> None: ...

    with pytest.raises(ConfigurationError, match="name="):

        @served.safe.operation(name="work")
        async def other() -> None: ...

    served.safe.operation(name="other")(other_endpoint)
    with pytest.raises(ConfigurationError, match="already"):
        served.safe.operation(name="third")(work)


async def other_endpoint() -> None: ...


def test_the_decorator_above_the_route():
    """House: above the route's decorator the route does not see it; refused at once on the application."""
    served = Service()
    with pytest.raises(ConfigurationError, match="below"):

        @served.safe.operation()
        @served.app.post("/jobs")
        async def work() -> None: ...


@pytest.mark.parametrize("seen", ["when it starts", "at its first request"])
def test_the_decorator_above_the_route_of_a_router(seen):
    """House: on a router it is seen when all routes stand: the application does not start, or does not serve."""

    async def trial():
        served = Service()
        router = APIRouter()

        @served.safe.operation()
        @router.post("/jobs")
        async def work() -> None:
            served.append()

        served.app.include_router(router, prefix="/v1")
        if seen == "when it starts":
            with pytest.raises(ConfigurationError, match="below"):
                await start(served.app)
            return
        for _ in range(2):
            failed = await served.post("/v1/jobs", raises=ConfigurationError)
            assert served.ledger == []
            assert failed.status == 500

    run(trial())


@pytest.mark.parametrize(
    ("methods", "taken", "fine"),
    [
        (["GET"], None, False),
        (["DELETE"], None, False),
        (["POST", "GET"], None, False),
        (["POST"], None, True),
        (["PATCH"], None, True),
        (["DELETE"], {"DELETE"}, True),
        (["PUT", "POST"], {"put", "post"}, True),
    ],
)
def test_a_route_whose_method_takes_no_key(methods, taken, fine):
    """R2: a contract that would never hold, or not always, is refused when the application starts."""

    async def trial():
        served = Service()
        settings = {} if taken is None else {"methods": taken}

        @served.app.api_route("/jobs", methods=methods)
        @served.safe.operation(**settings)
        async def work() -> None: ...

        if fine:
            sent = await start(served.app)
            assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        else:
            with pytest.raises(ConfigurationError, match="methods"):
                await start(served.app)

    run(trial())


def test_transactional_on_a_store_without_transactions():
    """R23: a memory store has no transaction to share."""
    served = Service()
    with pytest.raises(ConfigurationError, match="no transactions"):

        @served.safe.operation(effects="transactional")
        async def work(db: Annotated[Any, Depends(served.safe.connection)]) -> None: ...


def test_how_a_transactional_endpoint_gets_its_connection(tmp_path):
    """R23: one that blocks, one that never asks, and one that asks without being transactional are refused."""
    served = Bank(tmp_path)
    asked = Annotated[Any, Depends(served.safe.connection)]

    def repository(db: asked) -> Any:
        return db

    with pytest.raises(ConfigurationError, match="async def"):

        @served.safe.operation(effects="transactional")
        def blocking(db: asked) -> None: ...

    with pytest.raises(ConfigurationError, match="async def"):

        @served.safe.operation(effects="transactional")
        def blocking_stream(db: asked) -> Iterator[Any]:
            yield db

    with pytest.raises(ConfigurationError, match="never asks"):

        @served.safe.operation(effects="transactional")
        async def without(body: dict[str, int]) -> None: ...

    with pytest.raises(ConfigurationError, match='effects="transactional"'):

        @served.safe.operation()
        async def opaque(db: Annotated[Any, Depends(repository)]) -> None: ...

    @served.safe.operation(effects="transactional")
    async def by_request(request: Request) -> None: ...

    @served.safe.operation(effects="transactional")
    async def by_repository(db: Annotated[Any, Depends(repository)]) -> AsyncIterator[Any]:
        yield db


def test_a_dependency_that_is_left_after_the_transaction_has_ended(tmp_path):
    """H2, R23: a dependency with `yield` on top of the connection has to be left before the answer is sent."""

    async def trial():
        async with Bank(tmp_path) as served:

            async def session(db: Annotated[Any, Depends(served.safe.connection)]) -> AsyncIterator[list[int]]:
                pending: list[int] = []
                yield pending
                for amount in pending:
                    await insert(db, amount)

            def repository(pending: Annotated[Any, Depends(session)]) -> Any: ...

            for early in (session, repository):
                with pytest.raises(ConfigurationError, match=r"'session'.*scope=\"function\""):

                    @served.safe.operation(effects="transactional")
                    async def late(pending: Annotated[Any, Depends(early)]) -> None: ...

            @served.app.post("/jobs")
            @served.safe.operation(effects="transactional")
            async def work(pending: Annotated[list[int], Depends(session, scope="function")]) -> dict[str, int]:
                pending.append(7)
                return {}

            replies = [await served.post() for _ in range(2)]
            assert served.rows() == [7]
            assert [reply.replayed for reply in replies] == [False, True]

    run(trial())


def test_the_connection_on_a_route_that_is_no_operation(tmp_path):
    """R23: a connection whose transaction nobody would end is refused when the application starts."""

    async def trial():
        async with Bank(tmp_path) as served:

            @served.app.post("/jobs")
            async def work(db: Annotated[Any, Depends(served.safe.connection)]) -> None: ...

            with pytest.raises(ConfigurationError, match="/jobs"):
                await start(served.app)
            failed = await served.post(raises=ConfigurationError)
            assert served.rows() == []
            assert failed.status == 500

    run(trial())


def test_an_operation_served_by_another_application():
    """I2: where its middleware is not around it, an operation does not run unprotected."""

    async def trial():
        served, other = Service(), Service()

        @other.app.post("/jobs")
        @served.safe.operation()
        async def work() -> None:
            served.append()

        @other.app.post("/mine")
        @other.safe.operation()
        async def mine() -> None: ...

        failed = await other.post(raises=ConfigurationError)
        assert served.ledger == []
        assert failed.status == 500

    run(trial())


def test_a_public_scope_is_said():
    """R6: PUBLIC, and only PUBLIC, lets everybody share keys."""

    async def trial():
        served = Service(scope=PUBLIC, policy=Policy(required=True))

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            return served.append()

        replies = [await served.post(user=user) for user in ("ann", "bob", None)]
        assert served.ledger == [1]
        assert [reply.replayed for reply in replies] == [False, True, True]
        assert (await served.post(key=None)).kind == "key-missing"

    run(trial())
