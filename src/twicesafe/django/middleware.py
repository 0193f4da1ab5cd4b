"""The middleware: it knows a request before its view is reached, and what Django made of whatever the view did.

It goes last in MIDDLEWARE. Around each middleware Django turns exceptions into responses, so what comes back here is
what the caller is to see (E4), and whatever stands around treats a replay as it treats any answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, Final

from django.db import connections  # type: ignore[import-untyped]
from django.urls import Resolver404, resolve  # type: ignore[import-untyped]

from twicesafe.django.configuration import configured
from twicesafe.django.contract import SAFE, VISIT, Contract, authenticates_within, contract_of
from twicesafe.django.threads import in_thread, iscoroutinefunction, markcoroutinefunction, seen_through
from twicesafe.django.visit import Visit

NON_ATOMIC: Final = "_non_atomic_requests"
"""Where Django looks for databases whose ATOMIC_REQUESTS a view wants nothing of."""

_taken_over: ContextVar[bool] = ContextVar("twicesafe_atomic", default=False)


class IdempotencyMiddleware:
    """Records the answers of idempotent views, and sends them again; see twicesafe.django."""

    sync_capable: ClassVar[bool] = True
    async_capable: ClassVar[bool] = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._configured = configured()
        self._get_response = get_response
        self._is_async: bool = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)
        if self._configured.every_view:
            self.process_view = self._process_view

    def __call__(self, request: Any) -> Any:
        visit = self._visit(request)
        if self._is_async:
            return self._respond(request, visit)
        if visit is None:
            return self._get_response(request)
        token = _taken_over.set(bool(visit.atomic))
        try:
            response = self._get_response(request)
        except BaseException as error:
            visit.broke(error)
            raise
        finally:
            _taken_over.reset(token)
        try:
            return visit.settle(response)
        finally:
            visit.part()

    async def _respond(self, request: Any, visit: Visit | None) -> Any:
        if visit is None:
            return await self._get_response(request)

        async def respond() -> Any:
            _taken_over.set(bool(visit.atomic))
            return await self._get_response(request)

        if visit.contract is not None:
            return await seen_through(visit, respond)
        try:
            response = await respond()
            return await in_thread(partial(visit.settle, response)) if visit.begun else response
        except BaseException as error:
            # A view that hides its contract is not seen through. What it claimed is open, and is not to be kept alive.
            await in_thread(partial(visit.broke, error))
            raise
        finally:
            visit.part()

    def _visit(self, request: Any) -> Visit | None:
        visit = None
        if request.method not in SAFE:
            contract, callback = self._contract(request)
            if contract is None or request.method in contract.policy.methods:
                visit = Visit(self._configured, request, contract)
                if contract is not None:
                    visit.prepare(contract.policy)
                    if not (contract.early or contract.unsure):
                        visit.atomic = _take_over(callback)
        setattr(request, VISIT, visit)
        return visit

    def _contract(self, request: Any) -> tuple[Contract | None, Any]:
        try:
            callback = resolve(request.path_info, getattr(request, "urlconf", None)).func
        except Resolver404:
            return None, None
        contract = contract_of(callback, request.method)
        if contract is None and self._configured.every_view and not authenticates_within(callback):
            contract = Contract(self._configured.policy, None, None, early=True)
        return contract, callback

    def _process_view(self, request: Any, view: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG002 - of Django
        visit: Visit | None = getattr(request, VISIT)
        if visit is None or visit.contract is None or not visit.contract.early:
            return None
        instead = visit.enter(visit.contract, visit.contract.operation(view))
        if visit.keyed is not None:
            # Of a view that is not ours nobody can tell.
            visit.keyed.entered = None
        return instead


def _take_over(callback: Any) -> tuple[str, ...]:
    """Databases whose ATOMIC_REQUESTS begins inside of the claim for this request, and not around the view.

    What asynchronous views are refused for stays Django's to say.
    """
    wanted = [alias for alias, said in connections.settings.items() if said["ATOMIC_REQUESTS"]]
    if not wanted or iscoroutinefunction(callback):
        return ()
    declared: Any = getattr(callback, NON_ATOMIC, ())
    if not isinstance(declared, _NonAtomic):
        declared = _NonAtomic(declared)
        # A method is made anew each time it is asked for.
        setattr(getattr(callback, "__func__", callback), NON_ATOMIC, declared)
    return tuple([alias for alias in wanted if not declared.has(alias)])


class _NonAtomic(frozenset[str]):
    """Databases of which a view wants no transaction, and all of them while one is begun inside of the claim."""

    def __contains__(self, alias: object) -> bool:
        return _taken_over.get() or self.has(alias)

    def has(self, alias: object) -> bool:
        """Whether the view itself says so."""
        return super().__contains__(alias)
