"""What becomes of a request under a key is one number and one mark on a span, on every path."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from tests.shells.blocking_rig import BlockingRig, Failing, facts, sent
from tests.shells.probe import Probe, post
from tests.shells.rig import Failing as AsyncFailing
from tests.telemetry.recorded import Recorded, recording
from twicesafe.asgi import PUBLIC, IdempotencyMiddleware
from twicesafe.blocking.dealings import Shared
from twicesafe.core.policy import Policy
from twicesafe.errors import AmbiguousWriteError, LeaseLostError, StoreUnavailableError
from twicesafe.observe import Event
from twicesafe.once import AsyncOnce
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.telemetry import OTHER

LENGTH = ((b"content-type", b"text/plain"), (b"content-length", b"2"))


class Service:
    """An application behind the ASGI shell, whose observer counts, on a store that can be told to fail."""

    def __init__(self, recorded: Recorded, policy: Policy | None = None, **probe: Any) -> None:
        self.now = 1_000_000_000_000_000
        self.probe = Probe(**{"headers": LENGTH, "body": b"ok", **probe})
        self.store = AsyncFailing(AsyncMemoryStore(clock=lambda: self.now))
        self.app = IdempotencyMiddleware(
            self.probe, self.store, scope=PUBLIC, policy=policy or Policy(), observer=recorded
        )

    def post(self, **how: Any) -> Any:
        return asyncio.run(post(self.app, **how))

    def pass_time(self, how_long: timedelta) -> None:
        self.now += how_long // timedelta(microseconds=1)


def test_first_runs_and_replays_are_counted_and_timed(recorded: Recorded) -> None:
    """R44: one first run, and a replay for each retry; both with their time, one effect."""
    service = Service(recorded)
    assert [service.post().status for _ in range(3)] == [201] * 3
    assert len(service.probe.ledger) == 1
    assert recorded.outcomes == {"first_run": 1, "replay": 2}
    assert recorded.numbers("twicesafe.request.duration", "twicesafe.outcome") == {"first_run": 1, "replay": 2}
    assert all(event.seconds is not None and event.seconds > 0 for event in recorded.events)


def test_the_time_is_that_from_the_claim_to_the_record(recorded: Recorded) -> None:
    """R44: what a handler waits for is in its first run's time, and not in the replay's."""

    async def work() -> None:
        async with asyncio.timeout(10):
            await asyncio.sleep(0.05)

    service = Service(recorded, before=work)
    service.post()
    service.post()
    first, replay = recorded.events
    assert first.seconds is not None and replay.seconds is not None
    assert (first.name, replay.name) == ("completed", "replayed")
    assert first.seconds >= 0.05


def test_what_a_client_does_wrong_is_told_apart(recorded: Recorded) -> None:
    """R11, R44: a stream of 422s or of 400s means a broken client: each has a number of its own."""
    service = Service(recorded, Policy(required=True))
    for how in ({}, {"body": b"another"}, {"key": None}, {"key": b"\x01"}):
        service.post(**how)
    assert len(service.probe.ledger) == 1
    assert recorded.outcomes == {"first_run": 1, "mismatch": 1, "refused": 2}
    assert {event.result for event in recorded.events if event.name == "refused"} == {"key-missing", "key-invalid"}


def test_conflicts_say_that_retries_outrun_the_work(recorded: Recorded) -> None:
    """R11, R44: who meets the first run under way is counted as a conflict, and the first run as itself."""
    conflicting: list[int | None] = []

    async def retry() -> None:
        conflicting.append((await post(service.app)).status)

    service = Service(recorded, before=retry)
    service.post()
    assert len(service.probe.ledger) == 1
    assert conflicting == [409]
    assert recorded.outcomes == {"first_run": 1, "conflict": 1}


@pytest.mark.parametrize(
    ("effects", "outcome", "retry"),
    [("opaque", "first_run", "replay"), ("keyed", "reopened", "first_run")],
)
def test_failures_are_what_the_operation_declares(recorded: Recorded, effects: str, outcome: str, retry: str) -> None:
    """R13, R16, R44: an opaque failure is a first run with its answer; under derived keys the key is open again."""
    service = Service(recorded, Policy(effects=effects), raise_after=RuntimeError("boom"))
    service.post(raises=RuntimeError)
    assert recorded.outcomes == {outcome: 1}
    service.probe.raise_after = None
    service.pass_time(timedelta(seconds=1))
    service.post()
    assert recorded.outcomes == {outcome: 1, retry: 1}
    taken_over = recorded.numbers("twicesafe.events", "twicesafe.event")
    assert taken_over == ({"claim.taken_over": 1} if effects == "keyed" else {})


def test_what_did_nothing_is_released(recorded: Recorded) -> None:
    """R15, R44: an answer that says that nothing was done gives the key back, and is no first run."""
    service = Service(recorded, status=503)
    service.post()
    assert recorded.outcomes == {"released": 1}


def test_an_unknown_outcome_is_held_once_and_told_to_each(recorded: Recorded) -> None:
    """I6, R16, R44: held, loudly; each attempt that then asks is counted as told so."""
    service = Service(recorded, Policy(unknown_on_error=True), raise_after=RuntimeError("boom"))
    service.post(raises=RuntimeError)
    service.post()
    service.post()
    assert len(service.probe.ledger) == 1
    assert recorded.outcomes == {"held": 1, "unknown": 2}
    assert recorded.numbers("twicesafe.events", "twicesafe.event", "twicesafe.loud") == {("outcome.unknown", True): 1}


def test_recordings_that_fail_are_loud_and_end_as_held(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """R14, R44: the work is done and cannot be recorded: the failure is counted, and the run is held."""
    monkeypatch.setattr("twicesafe.core.exchange.FIRST_PAUSE", 1)
    service = Service(recorded)
    service.store.fail("complete", StoreUnavailableError("down"), times=4)
    assert service.post().status == 201
    assert len(service.probe.ledger) == 1
    assert recorded.outcomes == {"held": 1}
    assert recorded.numbers("twicesafe.events", "twicesafe.event") == {"recording.failed": 1}


def test_a_late_owner_is_counted_with_its_loss(recorded: Recorded) -> None:
    """I3, R44: who comes back after a take-over has lost its lease; what it did is counted as left."""
    service = Service(recorded)
    service.store.fail("complete", LeaseLostError("another has it"))
    service.post()
    assert recorded.outcomes == {"left": 1}
    assert recorded.numbers("twicesafe.events", "twicesafe.event", "twicesafe.loud") == {("lease.lost", True): 1}


def test_a_store_that_is_down_is_no_request_of_any_kind(recorded: Recorded) -> None:
    """R10, R44: nothing ran and nothing is remembered: the store's failure is counted, with its operation."""
    service = Service(recorded)
    service.store.fail("claim", StoreUnavailableError("down"))
    assert service.post().status == 503
    assert service.probe.ledger == [] and recorded.outcomes == {}
    assert recorded.numbers("twicesafe.events", "twicesafe.event", "twicesafe.operation") == {
        ("store.unavailable", "http"): 1
    }


def test_streams_are_first_runs_when_they_end(recorded: Recorded) -> None:
    """R18, R44: an answer that flows live is counted once, when it is recorded."""
    service = Service(recorded, chunks=[b"x" * 700_000] * 3, headers=())
    service.post()
    assert recorded.outcomes == {"first_run": 1}
    service.post()
    assert recorded.outcomes == {"first_run": 1, "replay_without_body": 1}


def test_a_transaction_whose_commit_is_unknown_is_left(recorded: Recorded, tmp_path: Any) -> None:
    """R23, R44: the commit's answer is lost: told loudly, and the run ends as one of which nothing else is known."""

    async def trial() -> int | None:
        store = AsyncSqliteStore(tmp_path / "shop.db")
        await store.apply_schema()
        failing = _Ambiguous(store)
        app = IdempotencyMiddleware(
            Probe(headers=LENGTH, body=b"ok"), failing, scope=PUBLIC, policy=Policy(effects="transactional"),
            observer=recorded,
        )  # fmt: skip
        try:
            return (await post(app)).status
        finally:
            await store.aclose()

    assert asyncio.run(trial()) == 201
    assert recorded.outcomes == {"left": 1}
    assert recorded.numbers("twicesafe.events", "twicesafe.event") == {"commit.unknown": 1}


class _Ambiguous:
    """A store whose transactions commit, and whose word of it is lost."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def transaction(self) -> Any:
        found = self._inner.transaction()
        complete = found.complete

        async def completing(*arguments: Any, **named: Any) -> None:
            await complete(*arguments, **named)
            raise AmbiguousWriteError("cut")

        found.complete = completing
        return found


# --- the same by blocking calls ---------------------------------------------------------------------------------------


class Blocking(BlockingRig):
    """A rig whose observer counts."""

    def __init__(self, recorded: Recorded, policy: Policy | None = None) -> None:
        super().__init__(policy, Failing(MemoryStore(clock=lambda: self.now)))
        self.shared = Shared(self.store, recorded, clock=lambda: self.seconds, pause=self.paused.append)

    def both(self, **how: Any) -> None:
        sent(self.ask(**how))


LENGTHY = ((b"content-length", b"4"),)


@pytest.mark.parametrize("headers", [LENGTHY, ()], ids=["in one piece", "as it comes"])
def test_blocking_runs_are_counted_alike(recorded: Recorded, headers: Any) -> None:
    """R44: the plain way and the exchange's count one first run, and each replay."""
    rig = Blocking(recorded)
    for _ in range(3):
        rig.both(headers=headers)
    assert len(rig.ledger) == 1
    assert recorded.outcomes == {"first_run": 1, "replay": 2}
    assert recorded.numbers("twicesafe.request.duration", "twicesafe.outcome") == {"first_run": 1, "replay": 2}


@pytest.mark.parametrize(
    ("policy", "how", "faults", "outcomes", "events"),
    [
        (Policy(), {"status": 429}, [], {"released": 1}, {}),
        (Policy(effects="keyed"), {"error": RuntimeError("boom")}, [], {"reopened": 1}, {}),
        (Policy(unknown_on_error=True), {"error": RuntimeError("boom")}, [], {"held": 1}, {"outcome.unknown": 1}),
        (Policy(), {}, [("complete", StoreUnavailableError("down"), 4)], {"held": 1}, {"recording.failed": 1}),
        (Policy(), {}, [("complete", LeaseLostError("late"), 1)], {"left": 1}, {"lease.lost": 1}),
        (Policy(), {}, [("claim", StoreUnavailableError("down"), 1)], {}, {"store.unavailable": 1}),
    ],
    ids=["released", "reopened", "held", "not recorded", "late", "no store"],
)
def test_blocking_runs_end_alike(
    recorded: Recorded, policy: Policy, how: Any, faults: Any, outcomes: Any, events: Any
) -> None:
    """R13, R14, R15, R44: released, reopened, held, unrecorded, late and without a store, by blocking calls."""
    rig = Blocking(recorded, policy)
    for method, error, times in faults:
        rig.store.fail(method, error, times=times)
    with pytest.raises(RuntimeError) if "error" in how else nullcontext():
        rig.both(**how)
    assert recorded.outcomes == outcomes
    assert recorded.numbers("twicesafe.events", "twicesafe.event") == events


# --- what the numbers may be told apart by ----------------------------------------------------------------------------


def test_operations_that_strangers_name_are_soon_others() -> None:
    """R44: names made from paths are bounded; what is too many is counted all the same, as `other`."""
    with recording(names=3) as recorded:
        for number in range(10):
            work = AsyncOnce(AsyncMemoryStore(), scope="jobs", observer=recorded)
            asyncio.run(_call(work, f"path/{number}"))
        found = recorded.numbers("twicesafe.requests", "twicesafe.operation", "twicesafe.outcome")
        operations = {operation for operation, _ in found}
        assert operations == {"path/0", "path/1", "path/2", OTHER}
        assert sum(found.values()) == 10


def test_a_name_that_nobody_can_write_down_spoils_nothing(recorded: Recorded) -> None:
    """R44: exporters lose everything for one text without UTF-8; what is measured and traced has none."""
    with recorded.tracers.get_tracer("tests").start_as_current_span("POST"):
        recorded(Event("conflict", "caf\udce9", "", loud=False))
    assert recorded.numbers("twicesafe.requests", "twicesafe.operation") == {"caf\\udce9": 1}
    assert dict(recorded.spans[0].attributes or {})["twicesafe.operation"] == "caf\\udce9"


async def _call(once: AsyncOnce, name: str) -> None:
    async def nothing() -> None: ...

    await once.operation(key=lambda: "k-0123456789", name=name)(nothing)()


def test_who_does_not_count_is_told_what_it_always_was() -> None:
    """R44: without `counts` no run is told, no time is taken, and a replay is the same event as ever."""
    events: list[Any] = []
    store = AsyncMemoryStore()
    app = IdempotencyMiddleware(Probe(headers=LENGTH, body=b"ok"), store, scope=PUBLIC, observer=events.append)
    for _ in range(2):
        asyncio.run(post(app))
    assert [(event.name, event.seconds, event.number) for event in events] == [("replayed", None, None)]


def test_a_request_says_which_attempt_it_is(recorded: Recorded) -> None:
    """R40, R44: the client's number is on the span; what is no number is nobody's."""
    service = Service(recorded)
    numbers = [b"1", b"2", b"secret", b"99999999999999"]
    tracer = recorded.tracers.get_tracer("server")
    for number in numbers:
        with tracer.start_as_current_span("POST /jobs"):
            service.post(headers=[(b"twicesafe-attempt", number)])
    found = [dict(span.attributes or {}) for span in recorded.spans]
    assert [span.get("twicesafe.attempt") for span in found] == [1, 2, None, None]
    assert [span["twicesafe.outcome"] for span in found] == ["first_run", "replay", "replay", "replay"]
    assert {span["twicesafe.operation"] for span in found} == {"http"}
    assert {span["twicesafe.key_hint"] for span in found} == {"…0001"}


def test_blocking_requests_mark_the_span_too(recorded: Recorded) -> None:
    """R44: by blocking calls, what became of the key is on the current span, and what was loud is an event of it."""
    rig = Blocking(recorded)
    rig.store.fail("complete", LeaseLostError("late"))
    with recorded.tracers.get_tracer("server").start_as_current_span("POST /jobs"):
        request = rig.request("k-0123456789")
        lines = [(b"twicesafe-attempt", b"3")]
        assert request.enter(PUBLIC, facts(b"x")._replace(headers=lines)) is None
        sent(request.answered(201, LENGTHY, [b"done"]))
    (span,) = recorded.spans
    about = dict(span.attributes or {})
    assert (about["twicesafe.outcome"], about["twicesafe.attempt"]) == ("left", 3)
    (event,) = span.events
    assert (event.name, dict(event.attributes or {})["error.type"]) == ("twicesafe.lease.lost", "LeaseLostError")
