"""Answers of every kind that a FastAPI route can give: what the first caller sees is what every retry gets."""

from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
)
from pydantic import BaseModel

from tests.shells.service import RefusedError, Service, run


class Receipt(BaseModel):
    number: int
    note: str = "thanks"


class YamlResponse(Response):
    """A response class of the application's own."""

    media_type = "application/yaml"

    def render(self, content: Any) -> bytes:
        return "".join(f"{name}: {value}\n" for name, value in content.items()).encode()


@pytest.mark.parametrize(
    ("route", "answer", "status", "media_type", "body"),
    [
        ({"status_code": 204}, lambda n, r: None, 204, b"application/json", b""),
        ({"status_code": 202}, lambda n, r: Response(status_code=202), 202, None, b""),
        ({"response_model": Receipt}, lambda n, r: {"number": n, "secret": 1}, 200, b"application/json", None),
        ({}, lambda n, r: Receipt(number=n), 200, b"application/json", b'{"number":1,"note":"thanks"}'),
        ({}, lambda n, r: None, 200, b"application/json", b"null"),
        ({}, lambda n, r: 0, 200, b"application/json", b"0"),
        ({}, lambda n, r: "", 200, b"application/json", b'""'),
        ({"response_class": YamlResponse}, lambda n, r: {"n": n}, 200, b"application/yaml", b"n: 1\n"),
        ({"response_class": HTMLResponse}, lambda n, r: f"<b>{n}</b>", 200, b"text/html; charset=utf-8", b"<b>1</b>"),
        ({}, lambda n, r: PlainTextResponse(f"{n}", 406), 406, b"text/plain; charset=utf-8", b"1"),
        ({}, lambda n, r: RedirectResponse("/elsewhere", 303), 303, None, b""),
        ({}, lambda n, r: Response(bytes(range(256)), media_type="x/y"), 200, b"x/y", bytes(range(256))),
    ],
)
def test_every_kind_of_answer_replays_as_it_was(route, answer, status, media_type, body):
    """R17, A3, D2, D4, D6: status, header lines and bytes of the retry are those of the first answer; one effect."""

    async def trial():
        served = Service()

        @served.app.post("/jobs", **route)
        @served.safe.operation()
        async def work(response: Response):
            response.headers["location"] = "/jobs/1"
            response.headers["etag"] = '"v1"'
            return answer(served.append()["n"], response)

        first, again = await served.post(), await served.post(headers=[(b"accept", b"text/plain")])
        assert served.ledger == [1]
        assert (first.status, first.header(b"content-type")) == (status, media_type)
        if body is not None:
            assert first.body == body
        assert b"secret" not in first.body
        assert (again.status, again.body, again.replayed) == (first.status, first.body, True)
        assert again.lines == [*first.lines, (b"idempotent-replayed", b"true")]

    run(trial())


@pytest.mark.parametrize(
    "fails",
    [
        lambda: HTTPException(402, {"reason": "declined"}, {"x-reason": "declined"}),
        RefusedError,
        lambda: HTTPException(500, "ours"),
    ],
)
@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize("form", ["async", "blocking"])
def test_an_error_that_somebody_handles_is_an_answer(fails, appends, form):
    """E4: an HTTPException, and one mapped by the application, before the effect or after: the retry sees the same."""

    async def trial():
        served = Service()

        @served.app.exception_handler(RefusedError)
        async def refused(request, error):
            return JSONResponse({"refused": True}, 409)

        def act() -> None:
            if appends:
                served.append()
            raise fails()

        if form == "async":

            @served.app.post("/jobs")
            @served.safe.operation()
            async def work() -> None:
                act()
        else:

            @served.app.post("/jobs")
            @served.safe.operation()
            def work() -> None:
                act()

        first, again = await served.post(), await served.post()
        assert served.ledger == [1] * appends
        assert first.status in (402, 409, 500)
        assert (again.status, again.body, again.replayed) == (first.status, first.body, True)
        assert again.lines[:-1] == first.lines

    run(trial())


@pytest.mark.parametrize("status", [408, 425, 429, 503])
def test_an_answer_that_says_nothing_was_done_frees_the_key(status):
    """E3, R15: 408, 425, 429 and 503 of an endpoint are not stored; the retry runs."""

    async def trial():
        served = Service()
        busy = [True]

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            if busy[0]:
                raise HTTPException(status, headers={"retry-after": "1"})
            return served.append()

        first = await served.post()
        assert (served.ledger, await served.state()) == ([], None)
        assert (first.status, first.header(b"retry-after")) == (status, b"1")
        busy[0] = False
        assert (await served.post()).status == 200
        assert served.ledger == [1]

    run(trial())


@pytest.mark.parametrize("effects", ["opaque", "keyed"])
@pytest.mark.parametrize("custom", [False, True])
def test_an_error_that_nobody_handles(effects, custom):
    """R16, E4c: opaque work stores a 500 that says so, keyed work is free to run again; the server's log has both."""

    async def trial():
        served = Service()

        if custom:

            @served.app.exception_handler(Exception)
            async def broken(request, error):
                return JSONResponse({"custom": True}, 500)

        @served.app.post("/jobs")
        @served.safe.operation(effects=effects)
        async def work() -> dict[str, int]:
            served.append()
            raise ZeroDivisionError

        first = await served.post(raises=ZeroDivisionError)
        served.now += 1
        again = await served.post(raises=ZeroDivisionError)
        assert isinstance(first.raised, ZeroDivisionError)
        if effects == "opaque":
            assert served.ledger == [1]
            assert (first.status, first.kind) == (500, "handler-failed")
            assert (again.status, again.body, again.replayed) == (500, first.body, True)
            assert again.raised is None
        else:
            assert served.ledger == [1, 1]
            assert (first.status, b"custom" in first.body) == (500, custom)

    run(trial())


def test_an_error_in_an_application_that_is_mounted():
    """E4c: a mounted application answers its own errors; what it answered is what the retry gets."""

    async def trial():
        served = Service()
        inside = FastAPI()
        served.app.mount("/inside", inside)

        @inside.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            served.append()
            raise ZeroDivisionError

        @inside.post("/fine")
        @served.safe.operation()
        async def fine() -> dict[str, int]:
            return served.append()

        first = await served.post("/inside/jobs", raises=ZeroDivisionError)
        again = await served.post("/inside/jobs")
        assert served.ledger == [1]
        assert (first.status, again.status, again.body, again.replayed) == (500, 500, first.body, True)
        for _ in range(2):
            reply = await served.post("/inside/fine", key="another-key-00001")
        assert served.ledger == [1, 1]
        assert reply.replayed
        nowhere = await served.post("/inside/nowhere", key="a-third-key-000001")
        assert nowhere.status == 404
        assert await served.state("a-third-key-000001") is None

    run(trial())


def test_an_answer_that_does_not_fit_its_model_is_an_error():
    """R16, E4: the endpoint ran, its value does not fit the response model: a stored 500, never a second run."""

    async def trial():
        served = Service()

        @served.app.post("/jobs", response_model=Receipt)
        @served.safe.operation()
        async def work() -> Any:
            served.append()
            return {"number": "much"}

        first = await served.post(raises=Exception)
        again = await served.post()
        assert served.ledger == [1]
        assert (first.status, again.status, again.replayed) == (500, 500, True)

    run(trial())


def test_lines_of_one_name_stay_apart():
    """D1, D3: two Link lines stay two; a cookie is the first caller's only, and hop-by-hop lines are no one's."""

    async def trial():
        served = Service()

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work(response: Response) -> dict[str, int]:
            response.headers.append("link", "</a>; rel=a")
            response.headers.append("link", "</b>; rel=b")
            response.set_cookie("session", "1", expires=1000)
            response.set_cookie("theme", "2")
            return served.append()

        first, again = await served.post(), await served.post()
        assert served.ledger == [1]
        named = [[line for name, line in reply.lines if name == b"link"] for reply in (first, again)]
        assert named == [[b"</a>; rel=a", b"</b>; rel=b"]] * 2
        assert [sum(name == b"set-cookie" for name, _ in reply.lines) for reply in (first, again)] == [2, 0]

    run(trial())


def test_what_the_log_says(caplog):
    """R22: key, body and answer of a request are in no log, whatever happens to it."""

    async def trial():
        served = Service()

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work(body: dict[str, Any], _: Annotated[str, Depends(served.user)]) -> dict[str, str]:
            served.append()
            return {"answer": "planted-answer"}

        with caplog.at_level("DEBUG"):
            for body in (b'{"a": "planted-body"}', b'{"a": "planted-body"}', b'{"a": "planted-other"}'):
                await served.post(key="planted-key-0123456789", body=body)
        assert served.ledger == [1]

    run(trial())
    for planted in ("planted-answer", "planted-body", "planted-other", "planted-key"):
        assert planted not in caplog.text
