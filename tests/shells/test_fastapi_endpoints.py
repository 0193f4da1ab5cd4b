"""Endpoints and dependencies of every form, under keys as they are without."""

import threading
from functools import wraps
from types import ModuleType
from typing import Annotated

import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, File, Form, Header, Request

from tests.shells.probe import post
from tests.shells.service import Service, Work, run, service
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.fastapi import KeyedRequest


def test_background_tasks_run_once():
    """R17, K: tasks of the endpoint and of its dependencies run after the first answer and never after a replay."""

    async def trial():
        served = Service()
        done: list[str] = []

        def audited(tasks: BackgroundTasks) -> None:
            tasks.add_task(done.append, "audit")

        @served.app.post("/jobs", dependencies=[Depends(audited)])
        @served.safe.operation()
        async def work(tasks: BackgroundTasks) -> dict[str, int]:
            tasks.add_task(done.append, "mail")
            return served.append()

        replies = [await served.post() for _ in range(2)]
        assert served.ledger == [1]
        assert done == ["audit", "mail"]
        assert replies[1].replayed

    run(trial())


def test_a_failing_background_task_changes_nothing():
    """K: a task that raises after the 201 reaches the server's log; the retry gets the 201."""

    async def trial():
        served = Service()

        @served.app.post("/jobs", status_code=201)
        @served.safe.operation()
        async def work(tasks: BackgroundTasks) -> dict[str, int]:
            def fail() -> None:
                raise RuntimeError("no mail today")

            tasks.add_task(fail)
            return served.append()

        first = await served.post(raises=RuntimeError)
        again = await served.post()
        assert served.ledger == [1]
        assert (first.status, str(first.raised)) == (201, "no mail today")
        assert (again.status, again.replayed) == (201, True)

    run(trial())


def test_endpoints_that_block_run_in_threads():
    """H1: a `def` endpoint works under a key as it does without, in the thread pool, with all its parameters."""

    async def trial():
        served = Service()
        threads = set()

        @served.app.post("/jobs/{number}")
        @served.safe.operation()
        def work(number: int, body: Work, request: Request, x: str = "-", x_user: Annotated[str, Header()] = ""):
            threads.add(threading.current_thread())
            return served.append((number, body.amount, request.method, x, x_user))

        for _ in range(2):
            reply = await served.post("/jobs/7", query=b"x=y")
        assert served.ledger == [(7, 1, "POST", "y", "ann")]
        assert threading.current_thread() not in threads
        assert reply.replayed

    run(trial())


class Endpoint:
    """An endpoint that is an object."""

    def __init__(self, served: Service) -> None:
        self.served = served

    async def __call__(self, body: Work) -> dict[str, int]:
        return self.served.append(body.amount)

    async def method(self, body: Work) -> dict[str, int]:
        return self.served.append(body.amount)


@pytest.mark.parametrize("form", ["object", "method", "decorated"])
def test_endpoints_may_be_of_any_form(form):
    """H1: an object, a method and a function under other decorators keep their signature and run once."""

    async def trial():
        served = Service()
        seen = []

        def noted(function):
            @wraps(function)
            async def noting(*args, **values):
                seen.append(sorted(values))
                return await function(*args, **values)

            return noting

        endpoint = Endpoint(served)
        call = {"object": endpoint, "method": endpoint.method, "decorated": noted(endpoint.method)}[form]
        decorated = served.safe.operation()(call)
        served.app.post("/jobs")(noted(decorated) if form == "decorated" else decorated)
        for _ in range(2):
            reply = await served.post()
        assert served.ledger == [1]
        assert reply.replayed
        if form == "decorated":
            assert ["body"] in seen

    run(trial())


LATER = """
from __future__ import annotations
from typing import Annotated
from fastapi import Depends
from tests.shells.service import Service, Work
from twicesafe.fastapi import KeyedRequest

served = Service()

class Amount:
    def __init__(self, body: Work) -> None:
        self.amount = body.amount

@served.app.post("/jobs")
@served.safe.operation()
async def work(
    amount: Annotated[Amount, Depends()], attempt: Annotated[KeyedRequest, Depends(served.safe.current)]
) -> dict[str, int]:
    return served.append((amount.amount, bool(attempt.key)))
"""


def test_annotations_that_are_evaluated_later():
    """H1: in a module with `from __future__ import annotations` an endpoint's parameters are what they say."""

    async def trial():
        module = ModuleType("later")
        exec(LATER, module.__dict__)
        for _ in range(2):
            reply = await module.served.post()
        assert module.served.ledger == [(1, True)]
        assert (reply.body, reply.replayed) == (b'{"n":1}', True)

    run(trial())


def test_a_handler_may_know_its_request():
    """R25, R15: the request under its key gives keys for calls further on, and takes "nothing was done"."""

    async def trial():
        served = Service()
        derived = []

        @served.app.post("/jobs")
        @served.safe.operation(effects="keyed")
        async def work(attempt: Annotated[KeyedRequest, Depends(served.safe.current)]) -> dict[str, int]:
            if not attempt.key:
                return {"n": 0}
            derived.append(attempt.derived_key("charge"))
            if len(derived) == 1:
                attempt.nothing_done()
                return {"n": -1}
            return served.append()

        replies = [await served.post() for _ in range(3)]
        assert served.ledger == [1]
        assert [reply.body for reply in replies] == [b'{"n":-1}', b'{"n":1}', b'{"n":1}']
        assert len(derived) == 2
        assert derived[0] == derived[1]
        assert (await served.post(key=None)).body == b'{"n":0}'

    run(trial())


def test_routers_and_prefixes():
    """H1: operations on routers, included under prefixes, nested, before or after Idempotency knows of them."""

    async def trial():
        served = Service()
        outer, inner = APIRouter(prefix="/outer"), APIRouter(prefix="/inner")

        @inner.post("/jobs")
        @served.safe.operation()
        async def work(body: Work) -> dict[str, int]:
            return served.append(body.amount)

        outer.include_router(inner)
        served.app.include_router(outer, prefix="/v1")
        for _ in range(2):
            reply = await served.post("/v1/outer/inner/jobs")
        assert served.ledger == [1]
        assert reply.replayed

    run(trial())


@pytest.mark.parametrize("kind", ["json", "form", "file", "stream"])
def test_the_body_arrives_whole_however_it_is_read(kind):
    """H1: JSON, a form, an uploaded file and a raw stream, sent in three pieces, are what the endpoint reads."""

    async def trial():
        served = Service()

        @served.app.post("/json")
        @served.safe.operation()
        async def take_json(body: Work) -> dict[str, int]:
            return served.append(body.amount)

        @served.app.post("/form")
        @served.safe.operation()
        async def take_form(amount: Annotated[int, Form()]) -> dict[str, int]:
            return served.append(amount)

        @served.app.post("/file")
        @served.safe.operation()
        async def take_file(content: Annotated[bytes, File()]) -> dict[str, int]:
            return served.append(content)

        @served.app.post("/stream")
        @served.safe.operation()
        async def take_stream(request: Request) -> dict[str, int]:
            return served.append(b"".join([piece async for piece in request.stream()]))

        boundary = b'--b\r\ncontent-disposition: form-data; name="content"; filename="f"\r\n\r\nabc\r\n--b--\r\n'
        body, media_type, expected = {
            "json": (b'{"amount": 12}', b"application/json", 12),
            "form": (b"amount=12", b"application/x-www-form-urlencoded", 12),
            "file": (boundary, b"multipart/form-data; boundary=b", b"abc"),
            "stream": (b"abcdef", b"application/octet-stream", b"abcdef"),
        }[kind]
        for _ in range(2):
            reply = await served.post(
                f"/{kind}", headers=[(b"content-type", media_type)], parts=[body[:3], body[3:5], body[5:]]
            )
        assert served.ledger == [expected]
        assert reply.replayed

    run(trial())


def test_behind_the_asgi_middleware_the_outer_one_does_the_work():
    """K: mounted twice, the request is claimed once, by the middleware, and runs once."""

    async def trial():
        served = service(required=True)
        outer = IdempotencyMiddleware(served.app, served.store, scope=lambda scope: "ann")
        for _ in range(2):
            reply = await post(outer, headers=[(b"x-user", b"ann"), (b"content-type", b"application/json")])
        assert served.ledger == [1]
        assert reply.replayed

    run(trial())
