"""Django under ASGI, in the process of the test: hang-ups, threads, streams, and layers that block."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import markcoroutinefunction, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.db import connections, transaction
from django.http import HttpResponse, JsonResponse
from django.urls import path as url

from tests.shells import django_site
from tests.shells.django_site import HERE, OURS, Site, problem, same
from tests.shells.django_wire import Wire, run, settled
from twicesafe.core.record import RecordState
from twicesafe.django import draining, idempotent, threads
from twicesafe.django.configuration import configured


@pytest.fixture
def site(tmp_path):
    made = django_site.on_file(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("effects", ["transactional", "opaque"])
@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "asynchronous"])
def test_a_client_that_hangs_up_changes_nothing(site: Site, effects: str, blocking: bool) -> None:
    """A1, R14, R23: the client goes while the view works; work, record and transaction end as if it had stayed."""
    begun, go_on = threading.Event(), threading.Event()

    def work(request: Any) -> HttpResponse:
        n = site.append()
        begun.set()
        assert go_on.wait(30)
        return JsonResponse({"n": n, "inside": site.in_atomic}, status=201)

    async def awork(request: Any) -> HttpResponse:
        return await sync_to_async(work)(request)

    async def trial() -> None:
        wire = Wire()
        await asyncio.to_thread(begun.wait, 30)
        hanging = asyncio.create_task(wire.hang_up())
        await asyncio.sleep(0)
        go_on.set()
        await hanging
        await settled()
        again = await site.apost()
        assert (again.status_code, again.json()) == (201, {"n": 1, "inside": effects == "transactional"})
        assert again.headers["idempotent-replayed"] == "true"
        assert wire.sent == []

    run(site, trial, idempotent(effects=effects)(work if blocking else awork))
    assert site.rows() == 1


class Hiding:
    """A view that tells nobody which one it calls."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def __call__(self, request: Any) -> Any:
        return self._view(request)


@pytest.mark.parametrize("effects", ["transactional", "opaque"])
@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "asynchronous"])
def test_a_hang_up_on_a_view_that_hides_its_contract_leaves_nothing_open(
    site: Site, effects: str, blocking: bool
) -> None:
    """A1, R12: what such a view claimed ends with its client: rolled back, or unknown; it is not renewed for hours."""
    begun, go_on = threading.Event(), threading.Event()

    def work(request: Any) -> HttpResponse:
        n = site.append()
        begun.set()
        assert go_on.wait(30)
        return JsonResponse({"n": n}, status=201)

    async def awork(request: Any) -> HttpResponse:
        return await sync_to_async(work)(request)

    async def trial() -> None:
        wire = Wire()
        await asyncio.to_thread(begun.wait, 30)
        hanging = asyncio.create_task(wire.hang_up())
        await asyncio.sleep(0)
        go_on.set()
        await hanging
        assert not configured().shared.renewals._live
        again = await site.apost()
        assert await sync_to_async(site.rows)() == 1
        if effects == "transactional":
            assert (again.status_code, again.json()) == (201, {"n": 1})
        else:
            assert (again.status_code, problem(again)) == (409, "outcome-unknown")

    contract = idempotent(effects=effects)
    run(site, trial, Hiding(contract(work)) if blocking else markcoroutinefunction(Hiding(contract(awork))))


def test_what_a_request_raises_as_it_is_cancelled_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A1c: cancelled at the moment at which the work has failed, what it raised goes to the loop's handler."""
    fail = threads._Work._fail

    class Open:
        """A visit that was begun, and that nothing is left of to be settled."""

        begun, flow = True, None

        def broke(self, error: BaseException) -> None:
            pass

    async def trial() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context.get("exception")))
        failure = ValueError("no such thing")

        async def respond() -> Any:
            raise failure

        def failing(work: Any, error: BaseException) -> None:
            fail(work, error)
            task.cancel()

        monkeypatch.setattr(threads._Work, "_fail", failing)
        task = asyncio.create_task(threads.seen_through(Open(), respond))
        (raised,) = await asyncio.gather(task, return_exceptions=True)
        await settled()
        assert told == [failure]
        assert isinstance(raised, asyncio.CancelledError)

    asyncio.run(trial())


def test_a_cancellation_at_every_moment(site: Site) -> None:
    """A1c, R14: the request's task is cancelled after n turns of the loop, for each n; the work is done once, or not
    begun, and the retry has its answer."""

    async def work(request: Any) -> HttpResponse:
        await asyncio.sleep(0)
        n = await sync_to_async(site.append)()
        await asyncio.sleep(0)
        return JsonResponse({"n": n}, status=201)

    async def trial() -> None:
        turns = 0
        while True:
            await sync_to_async(site.execute)("DELETE FROM ledger")
            await sync_to_async(site.execute)("DELETE FROM twicesafe_records")
            wire = Wire()
            for _ in range(turns):
                await asyncio.sleep(0.002)
                if wire.task.done():
                    break
            over = wire.task.done()
            await wire.hang_up()
            await settled()
            again = await site.apost()
            assert await sync_to_async(site.rows)() == 1
            assert (again.status_code, again.json()) == (201, {"n": 1})
            if over:
                return
            turns += 1

    run(site, trial, idempotent()(work))


def test_a_transaction_is_that_of_the_asynchronous_orm(site: Site) -> None:
    """R23, H2: sync_to_async and atomic() of an asynchronous view are in the transaction; a 4xx rolls them back."""

    def effect() -> bool:
        with transaction.atomic(using=site.alias):
            site.append()
        return site.in_atomic

    async def work(request: Any) -> HttpResponse:
        inside = [await sync_to_async(effect)() for _ in range(2)]
        return JsonResponse({"inside": inside}, status=400 if request.GET else 201)

    async def trial() -> None:
        first = await site.apost()
        assert first.json() == {"inside": [True, True]}
        same(first, await site.apost())
        refused = await site.apost("/jobs?no", key="other")
        same(refused, await site.apost("/jobs?no", key="other"))

    run(site, trial, idempotent(effects="transactional")(work))
    assert site.rows() == 2


def test_the_thread_of_a_request_ends_with_its_connection(site: Site) -> None:
    """C8: what was opened in the thread of a request is closed with it, persistent as it may be."""
    opened: list[Any] = []

    def work(request: Any) -> HttpResponse:
        site.append()
        opened.append(connections[site.alias].connection)
        return HttpResponse("x")

    async def trial() -> None:
        connections.settings[site.alias]["CONN_MAX_AGE"] = None
        for number in range(3):
            await site.apost(key=f"key {number}")

    run(site, trial, idempotent(effects="transactional")(work))
    assert len(set(map(id, opened))) == 3
    for connection in opened:
        with pytest.raises(Exception, match="closed"):
            connection.execute("SELECT 1")


def test_context_variables_come_back(site: Site) -> None:
    """H1: what a view sets is seen by the middlewares around."""
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    seen: list[str] = []

    async def work(request: Any) -> HttpResponse:
        variable.set("set")
        return HttpResponse("x")

    async def trial() -> None:
        before = variable.get()
        await site.apost()
        seen.extend([before, variable.get()])

    run(site, trial, idempotent()(work))
    assert seen == ["unset", "set"]


def blocks(get_response: Any) -> Any:
    """A middleware of the old kind, which makes Django call all around it in threads."""
    return lambda request: get_response(request)


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "around"])
def test_middlewares_that_block_may_stand_around_and_inside(site: Site, inside: bool) -> None:
    """H1: a middleware without async changes nothing but where code runs."""
    middleware = [f"{HERE}.Callers", OURS]
    middleware.insert(2 if inside else 0, f"{__name__}.blocks")

    async def awork(request: Any) -> HttpResponse:
        return JsonResponse({"n": await sync_to_async(site.append)()})

    def work(request: Any) -> HttpResponse:
        return JsonResponse({"n": site.append()})

    async def trial() -> None:
        for path in ("/a", "/b"):
            same(await site.apost(path, key=path * 9), await site.apost(path, key=path * 9))

    routes = [url("a", idempotent(name="a")(work)), url("b", idempotent(effects="transactional")(awork))]
    run(site, trial, *routes, MIDDLEWARE=middleware)
    assert site.rows() == 2


def test_asynchronous_views_under_wsgi(site: Site) -> None:
    """H1, R23: Django runs them in a loop of their own; claim, transaction and record are as ever."""

    async def work(request: Any) -> HttpResponse:
        return JsonResponse({"n": await sync_to_async(site.append)(), "inside": await sync_to_async(_in_atomic)(site)})

    with site.serving(idempotent(effects="transactional")(work)):
        first = site.post()
        assert first.json() == {"n": 1, "inside": True}
        same(first, site.post())
    assert site.rows() == 1


def _in_atomic(site: Site) -> bool:
    return site.in_atomic


def test_an_exception_after_the_client_is_gone_is_told(site: Site) -> None:
    """A1, R14: an opaque view that fails for nobody's eyes is recorded as failed, and complained of once, by Django."""
    begun, go_on = threading.Event(), threading.Event()

    async def work(request: Any) -> HttpResponse:
        await sync_to_async(site.append)()
        begun.set()
        await asyncio.to_thread(go_on.wait, 30)
        raise ZeroDivisionError

    async def trial() -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        wire = Wire()
        await asyncio.to_thread(begun.wait, 30)
        await wire.hang_up()
        go_on.set()
        await settled()
        again = await site.apost()
        assert (again.status_code, again.headers["idempotent-replayed"]) == (500, "true")
        assert complaints == []

    run(site, trial, idempotent()(work))
    record = site.record()
    assert record is not None and record.state is RecordState.COMPLETED
    assert site.rows() == 1


def test_a_shutdown_waits_for_work_whose_client_is_gone(site: Site) -> None:
    """R14: the server's lifespan ends when the record is there; requests pass through to Django."""
    begun, go_on = threading.Event(), threading.Event()

    def work(request: Any) -> HttpResponse:
        begun.set()
        assert go_on.wait(30)
        return JsonResponse({"n": site.append()}, status=201)

    async def trial() -> None:
        application = draining(ASGIHandler())
        sent: list[str] = []
        orders: asyncio.Queue[dict[str, str]] = asyncio.Queue()

        async def send(message: Any) -> None:
            sent.append(message["type"])

        orders.put_nowait({"type": "lifespan.startup"})
        lifespan = asyncio.ensure_future(application({"type": "lifespan"}, orders.get, send))
        wire = Wire(application)
        await asyncio.to_thread(begun.wait, 30)
        await wire.hang_up()
        orders.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.sleep(0)
        assert sent == ["lifespan.startup.complete"]
        go_on.set()
        await lifespan
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert (await sync_to_async(site.rows)(), threads._running) == (1, set())

    run(site, trial, idempotent()(work))


@pytest.mark.parametrize("effects", ["transactional", "opaque"])
@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "asynchronous"])
def test_a_hang_up_around_a_middleware_that_blocks_changes_nothing(site: Site, effects: str, blocking: bool) -> None:
    """A1, B7, R14: Django's thread around ends with the client, ours goes on to the record."""
    begun, go_on = threading.Event(), threading.Event()

    def work(request: Any) -> HttpResponse:
        n = site.append()
        begun.set()
        assert go_on.wait(30)
        return JsonResponse({"n": n}, status=201)

    async def awork(request: Any) -> HttpResponse:
        n = await sync_to_async(site.append)()
        begun.set()
        assert await asyncio.to_thread(go_on.wait, 30)
        assert await sync_to_async(site.rows)() == n
        return JsonResponse({"n": n}, status=201)

    async def trial() -> None:
        wire = Wire()
        await asyncio.to_thread(begun.wait, 30)
        hanging = asyncio.create_task(wire.hang_up())
        await asyncio.sleep(0)
        go_on.set()
        await hanging
        await settled()
        again = await site.apost()
        assert (again.status_code, again.json()) == (201, {"n": 1})

    middleware = [f"{__name__}.blocks", f"{HERE}.Callers", OURS]
    run(site, trial, idempotent(effects=effects)(work if blocking else awork), MIDDLEWARE=middleware)
    assert site.rows() == 1
