"""Plain functions that happen once per key: jobs, queue tasks, scheduled charges, an agent's tools (R32).

    once = Once(SqliteStore("jobs.db"), scope="billing")

    receipt = once("sub_123:2026-10", charge, "sub_123", 4200)

    @once.operation(key=lambda subscription, month: f"{subscription}:{month}", effects="keyed")
    def renew(subscription: str, month: str) -> Receipt: ...

The rules are those of a request: the key names the intent, the arguments are its fingerprint, the first answer is the
answer, a crash leaves what the operation declares. The key is the caller's to choose, and it outlives the process: a
queue's message id, a billing period, never something made on the spot.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from copy import copy
from functools import wraps
from inspect import iscoroutinefunction
from random import sample
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar, cast

from twicesafe.blocking.dealings import Shared as BlockingShared
from twicesafe.called import AsyncCall, Call, Contract, current
from twicesafe.cancelling import is_cancelled
from twicesafe.core.claims import Claim
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.functions import Function
from twicesafe.core.keys import Scope, check_key, scoped_key
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects, Record
from twicesafe.core.turns import ATTEMPTS, is_due, shares, used_up
from twicesafe.dealings import Shared
from twicesafe.declared import Answered, Done, Errors, NotDone, Unclear
from twicesafe.errors import AttemptsExhaustedError, ConfigurationError, DefinitionChangedError, ValueNotKeptError
from twicesafe.observe import Observer, Work, around, log_events
from twicesafe.operations import check_async, check_blocking, check_effects, check_resumes
from twicesafe.owners import new_owner
from twicesafe.resuming import Resumed, Round
from twicesafe.stores.contract import AsyncStore, Outstanding, Store

__all__ = ["Answered", "AsyncOnce", "Done", "NotDone", "Once", "Resumed", "Unclear", "current"]

P = ParamSpec("P")
R = TypeVar("R")

_Due: TypeAlias = tuple[Contract, Claim, Callable[[], Any]]


class _Contracts:
    """What blocking and asynchronous functions have in common."""

    def __init__(self, store: Store | AsyncStore, scope: Scope, policy: Policy | None) -> None:
        self._store: Any = store
        self._scope = scope
        self._policy = policy or Policy()
        self._resumables: dict[str, tuple[Contract, Callable[..., Any]]] = {}
        self._after: object = None
        """How far the look for broken-off operations has come."""

    def within(self, scope: Scope) -> Self:
        """The same for the keys of another tenant."""
        other = copy(self)
        other._scope = scope  # noqa: SLF001 - of this class
        return other

    def _contract(
        self,
        function: Callable[..., Any],
        name: str | None,
        policy: Policy,
        without: Collection[str],
        repeatable: Errors,
    ) -> Contract:
        self._check(function)
        what = Function(function, name=name, without=without)
        operation = Operation(what.name, policy)
        check_effects(operation, self._store)
        if policy.effects is Effects.RESUMABLE:
            check_resumes(operation, self._store)
            what.check_resumable()
        return Contract(what, operation, repeatable)

    def _contract_of_call(self, function: Callable[..., Any]) -> Contract:
        if self._policy.effects is Effects.RESUMABLE:
            raise ConfigurationError("a worker goes on with what it knows by name: declare it by operation(name=...)")
        return self._contract(function, None, self._policy, (), ())

    def _remember(self, contract: Contract, function: Callable[..., Any]) -> None:
        """So that a worker finds it by its name."""
        name = contract.operation.name
        if contract.operation.policy.effects is Effects.RESUMABLE:
            if name in self._resumables:
                raise ConfigurationError(f"two operations are called {name!r}: give one of them another name=")
            self._resumables[name] = (contract, function)

    def _check(self, function: Callable[..., Any]) -> None:
        """ConfigurationError for a function that is not called this way."""

    def _claim(self, contract: Contract, key: str, scope: Scope, arguments: Any, named: Any) -> Claim:
        """Everything that can be wrong with a call is found here, before anything is claimed."""
        policy = contract.operation.policy
        name = contract.operation.name
        found = scoped_key(scope, check_key(key, policy.key), name if policy.per_operation_keys else None)
        fingerprint = contract.function.fingerprint(arguments, named)
        resumable = policy.effects is Effects.RESUMABLE
        return Claim(
            found.digest, found.scope, name, found.hint, fingerprint, policy.effects, new_owner(), policy.lease_us,
            policy.key_us, contract.function.kept_arguments(arguments, named) if resumable else None,
        )  # fmt: skip

    def _due(self, found: Outstanding, lanes: int) -> list[Sequence[_Due]]:
        """The operations among these records that this process knows and whose turn it is, in shares."""
        due: list[_Due] = []
        for record in found.records:
            known = self._resumables.get(record.operation)
            if known is None or not is_due(record, found.now):
                continue
            contract, function = known
            policy = contract.operation.policy
            claim = Claim(
                record.digest, record.scope, record.operation, record.key_hint, GivenFingerprint(record.fingerprint),
                Effects.RESUMABLE, new_owner(), policy.lease_us, policy.key_us, seen=record,
            )  # fmt: skip
            due.append((contract, claim, _work(contract, function, record)))
        # Workers that look at the same time begin at different ends.
        found_shares = shares(due, lanes)
        return sample(found_shares, len(found_shares))


class Once(_Contracts):
    """Runs functions once per key, on a blocking Store. Safe to share between threads.

    `scope` says whose keys these are: a tenant, a queue, a job's name; or PUBLIC. `policy` is what functions that say
    nothing else go by; of it count effects, lease, retention, wait, `response_limit` and `per_operation_keys`.

    A call gives what the function gave when it first ran under the key. It raises KeyReusedError for other arguments,
    InProgressError where it is running (after `wait`), OutcomeUnknownError where it broke off and is opaque,
    FailedBeforeError where it raised and is opaque, ResultNotKeptError where it is done and the result is not kept, a
    StoreError where it cannot be protected (and then it does not run), and whatever the function raises.
    """

    def __init__(
        self, store: Store, *, scope: Scope, policy: Policy | None = None, observer: Observer = log_events
    ) -> None:
        check_blocking(store)
        super().__init__(store, scope, policy)
        self._shared = BlockingShared(store, observer)

    def __call__(self, key: str, function: Callable[..., R], /, *arguments: Any, **named: Any) -> R:
        """Call `function` with these arguments, unless it was called under this key before."""
        contract = self._contract_of_call(function)
        return cast("R", self._run(contract, function, key, self._scope, arguments, named))

    def operation(
        self,
        *,
        key: Callable[..., str],
        policy: Policy | None = None,
        name: str | None = None,
        scope: Callable[..., Scope] | None = None,
        without: Collection[str] = (),
        repeatable: Errors = (),
        **settings: Any,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """The contract of the function below it. `key`, and `scope`, get the function's arguments.

        `without` names parameters that do not say what is asked for, and are no part of the fingerprint. `repeatable`
        are exceptions by which the function says that it did nothing: the key stays free. `name` is remembered with the
        key; the function's own is used otherwise, so give one before you move a function.
        """
        chosen = (policy or self._policy).but(**settings)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            contract = self._contract(function, name, chosen, without, repeatable)
            self._remember(contract, function)

            @wraps(function)
            def called(*arguments: P.args, **named: P.kwargs) -> R:
                whose = self._scope if scope is None else scope(*arguments, **named)
                return cast("R", self._run(contract, function, key(*arguments, **named), whose, arguments, named))

            return called

        return decorate

    def resume(self, look_at: int = 5_000, *, stopping: threading.Event | None = None) -> Resumed:
        """Go on with resumable operations that broke off, without their callers; one round of it (R24, R27).

        Looks at about `look_at` records, on from where the last call stopped. Any number of workers may do this at
        once. An operation that fails again is tried again later, with growing pauses, and held as unknown in the end.
        Once `stopping` is set, no further operation is begun.
        """
        found: Outstanding = self._store.outstanding(self._after, look_at)
        self._after = found.after
        round_ = Round(self._shared.observer)
        for share in self._due(found, 1):
            for contract, claim, work in share:
                if stopping is not None and stopping.is_set():
                    return round_.result(more=found.after is not None)
                call = Call(self._shared, contract, claim.key_hint, claim)
                try:
                    with around(self._shared.observer, Work("resume", claim.operation, claim.key_hint)):
                        call.run(work)
                except Exception as error:  # noqa: BLE001 - it must not end the round
                    left = round_.failed(claim, error)
                else:
                    left = round_.ended(ran=call.ran)
                if left:
                    break
        return round_.result(more=found.after is not None)

    def _check(self, function: Callable[..., Any]) -> None:
        if iscoroutinefunction(function):
            raise ConfigurationError(f"{function.__qualname__} is asynchronous: run it by AsyncOnce")

    def _run(self, contract: Contract, function: Any, key: str, scope: Scope, arguments: Any, named: Any) -> Any:
        claim = self._claim(contract, key, scope, arguments, named)
        return Call(self._shared, contract, key, claim).run(lambda: function(*arguments, **named))


class AsyncOnce(_Contracts):
    """Once, for coroutine functions and an AsyncStore. The same promises.

    Cancelling a call cancels the function; what came of it is recorded all the same before the cancellation goes on.
    """

    def __init__(
        self, store: AsyncStore, *, scope: Scope, policy: Policy | None = None, observer: Observer = log_events
    ) -> None:
        check_async(store)
        super().__init__(store, scope, policy)
        self._shared = Shared(store, observer, lambda _scope, _status: True)

    async def __call__(self, key: str, function: Callable[..., Awaitable[R]], /, *arguments: Any, **named: Any) -> R:
        """See Once.__call__."""
        contract = self._contract_of_call(function)
        return cast("R", await self._run(contract, function, key, self._scope, arguments, named))

    def operation(
        self,
        *,
        key: Callable[..., str],
        policy: Policy | None = None,
        name: str | None = None,
        scope: Callable[..., Scope] | None = None,
        without: Collection[str] = (),
        repeatable: Errors = (),
        **settings: Any,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """See Once.operation."""
        chosen = (policy or self._policy).but(**settings)

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            contract = self._contract(function, name, chosen, without, repeatable)
            self._remember(contract, function)

            @wraps(function)
            async def called(*arguments: P.args, **named: P.kwargs) -> R:
                whose = self._scope if scope is None else scope(*arguments, **named)
                return cast("R", await self._run(contract, function, key(*arguments, **named), whose, arguments, named))

            return called

        return decorate

    async def resume(
        self, look_at: int = 5_000, *, at_once: int = 8, stopping: threading.Event | None = None
    ) -> Resumed:
        """See Once.resume. `at_once` is how many go on at a time."""
        found: Outstanding = await self._store.outstanding(self._after, look_at)
        self._after = found.after
        round_, left = Round(self._shared.observer), self._due(found, at_once)

        async def lane() -> None:
            while left:
                for contract, claim, work in left.pop():
                    if stopping is not None and stopping.is_set():
                        return
                    call = AsyncCall(self._shared, contract, claim.key_hint, claim)
                    try:
                        with around(self._shared.observer, Work("resume", claim.operation, claim.key_hint)):
                            await call.run(work)
                    except (Exception, asyncio.CancelledError) as error:
                        if not isinstance(error, Exception) and is_cancelled():
                            raise
                        met = round_.failed(claim, error)
                    else:
                        met = round_.ended(ran=call.ran)
                    if met:
                        break

        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(left))):
                group.create_task(lane())
        return round_.result(more=found.after is not None)

    async def _run(self, contract: Contract, function: Any, key: str, scope: Scope, arguments: Any, named: Any) -> Any:
        claim = self._claim(contract, key, scope, arguments, named)
        return await AsyncCall(self._shared, contract, key, claim).run(lambda: function(*arguments, **named))


def _work(contract: Contract, function: Callable[..., Any], record: Record) -> Callable[[], Any]:
    """The call as it was made first."""
    assert record.request is not None
    kept = record.request

    def work() -> Any:
        if used_up(record):
            raise AttemptsExhaustedError(f"{record.operation} was tried {ATTEMPTS} times and is held for a human")
        try:
            arguments, named = contract.function.arguments(kept)
        except ValueNotKeptError as error:
            raise DefinitionChangedError(f"its arguments were kept and cannot be read: {error}") from error
        return function(*arguments, **named)

    return work
