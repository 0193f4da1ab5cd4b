"""One request on its way through Django: what the middleware, the view and the signals know of it between them.

All that touches the store is blocking, and is called in the thread in which the ORM works for this request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from sys import exc_info
from typing import Any

from django.core.signals import got_request_exception  # type: ignore[import-untyped]
from django.db import connections, transaction  # type: ignore[import-untyped]

from twicesafe.blocking.environ import Environ, carries_header, facts_of, key_of
from twicesafe.blocking.request import BlockingRequest
from twicesafe.blocking.sending import Close, Sendable
from twicesafe.core.carriers import QueryParameter, body_may_carry
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects
from twicesafe.core.steps import Answer
from twicesafe.django.answers import answer, flowing, joined, lines_of, rewrite
from twicesafe.django.configuration import Configured
from twicesafe.django.contract import VISIT, Contract
from twicesafe.django.incoming import body_of, seen
from twicesafe.django.threads import in_thread
from twicesafe.errors import ConfigurationError, RequestError
from twicesafe.operations import check_effects, identified


class Visit:
    """A request that a contract may be for."""

    def __init__(self, configured: Configured, request: Any, contract: Contract | None) -> None:
        self.request = request
        self.contract = contract
        """What was found before the view; one that hides is known only when the view is reached."""
        self.atomic: tuple[str, ...] = ()
        """Databases whose ATOMIC_REQUESTS is to begin inside of the claim."""
        self.keyed: BlockingRequest | None = None
        self.raised: BaseException | None = None
        """What nobody handled: Django answered it with the error page."""
        self.flow: tuple[Iterator[bytes], Close | None] | None = None
        """The pieces of an answer that flows live, and what closes them."""
        self._configured = configured
        self._environ: Environ | None = None
        self._body: bytes | RequestError | None = None

    @property
    def environ(self) -> Environ:
        """The request as it was sent."""
        if self._environ is None:
            self._environ = seen(self.request)
        return self._environ

    @property
    def begun(self) -> bool:
        """Whether its work is to be seen through, whoever goes away."""
        return self.keyed is not None and self.keyed.begun

    def prepare(self, policy: Policy) -> None:
        """Take the body where it may be wanted: once CSRF has looked into a form, nothing is left of an upload."""
        environ = self.environ
        if self._body is None and (
            carries_header(environ, policy)
            or any(isinstance(field, QueryParameter) for field in policy.fields)
            or body_may_carry(policy.fields, _content_type(environ))
        ):
            self._body = body_of(self.request, policy.body_limit)

    # --- the view -----------------------------------------------------------------------------------------------------

    def run(self, contract: Contract, operation: Operation, call: Callable[[], Any]) -> Any:
        """Call the view, or answer instead. Where an event loop runs, that is something to await."""
        if _in_loop():
            return self.arun(contract, operation, call)
        instead = self.enter(contract, operation)
        if instead is not None:
            return instead
        self._reached()
        for alias in self.atomic:
            call = transaction.atomic(using=alias)(call)
        return call()

    async def arun(self, contract: Contract, operation: Operation, call: Callable[[], Any]) -> Any:
        """The same for an asynchronous view."""
        instead = await in_thread(lambda: self.enter(contract, operation))
        if instead is not None:
            return instead
        self._reached()
        return await call()

    def enter(self, contract: Contract, operation: Operation) -> Any:
        """Claim. None means run; otherwise that is what the layers up to the middleware get to see."""
        policy = operation.policy
        if self.keyed is not None:
            raise ConfigurationError(f"{operation.name!r} is called by a view that has a contract already: keep one")
        if self.request.method not in policy.methods:
            return None
        check_effects(operation, self._configured.shared.store)
        keyed = self.keyed = BlockingRequest(self._configured.shared, operation, "")
        try:
            instead = self._claim(contract, keyed)
        except RequestError as error:
            instead = keyed.refuse(error)
        return None if instead is None else answer(instead.status, (), b"")

    def _claim(self, contract: Contract, keyed: BlockingRequest) -> Sendable | None:
        policy = keyed.operation.policy
        self.prepare(policy)
        body = self._body
        if isinstance(body, RequestError) and body_may_carry(policy.fields, _content_type(self.environ)):
            raise body
        key = key_of(self.environ, policy, body if isinstance(body, bytes) else b"")
        if key is None:
            if policy.effects is not Effects.TRANSACTIONAL:
                return None
            keyed.entered = False
            return keyed.enter_without_key()
        if isinstance(body, RequestError):
            raise body
        if not contract.early:
            self._check_atomic(keyed.operation)
        assert body is not None
        who = identified((contract.scope or self._configured.scope)(self.request))
        keyed.bind(keyed.operation, key)
        return keyed.enter(who, facts_of(self.environ, policy, body), self.request)

    def _check_atomic(self, operation: Operation) -> None:
        """What is committed after the answer is recorded may still fail."""
        for alias, said in connections.settings.items():
            if said["ATOMIC_REQUESTS"] and alias not in self.atomic and connections[alias].in_atomic_block:
                raise ConfigurationError(
                    f"the transaction of ATOMIC_REQUESTS on {alias!r} is around {operation.name!r} and has to be "
                    "inside of it: a decorator above hides which view it calls. Give that one functools.wraps, or put "
                    "@transaction.non_atomic_requests above it"
                )

    def _reached(self) -> None:
        if self.keyed is not None:
            self.keyed.entered = True

    def part(self) -> None:
        """The exchange is over: what leads back to the request would leave it to the garbage collector."""
        self.request = self._environ = self._body = None

    # --- its answer ---------------------------------------------------------------------------------------------------

    def broke(self, error: BaseException) -> None:
        """The layers inside raised `error` and made no response of it: settle what is open."""
        if self.keyed is not None and self.keyed.begun:
            try:
                self.keyed.raised(error)
            except BaseException as raised:
                if raised is not error:
                    raise

    def settle(self, response: Any, pieces: Iterator[bytes] | None = None, close: Close | None = None) -> Any:
        """Have the answer recorded. What is to be sent: the response itself wherever it is the answer.

        `pieces` are those of a stream, where they are not the response's own. What is left of a live one is `flow`.
        Raises for a response that no server could send either, and has settled what was open then.
        """
        try:
            return self._settle(response, pieces, close)
        except BaseException as error:
            self.broke(error)
            raise

    def _settle(self, response: Any, pieces: Iterator[bytes] | None, close: Close | None) -> Any:
        keyed = self.keyed
        if keyed is None or not keyed.begun:
            return response
        if type(keyed.result) is Answer:
            # Nothing ran.
            return self._sent(response, keyed.instead())
        if self.raised is not None and not keyed.operation.policy.records_exceptions:
            keyed.failed(self.raised)
        whole = None if response.streaming else [response.content]
        sent = keyed.answered(
            response.status_code, lines_of(response), whole or (iter(response) if pieces is None else pieces), close
        )
        return self._sent(response, sent)

    def _sent(self, response: Any, sendable: Sendable) -> Any:
        status, headers, pieces, close, _ = sendable
        if not isinstance(pieces, list):
            self.flow = iter(pieces), close
            made = flowing(response, headers, map(bytes, pieces))
        elif self.keyed is not None and type(self.keyed.result) is not Answer and not response.streaming:
            rewrite(response, headers)
            return response
        else:
            made = answer(status, headers, joined(pieces))
        closers = made._resource_closers  # noqa: SLF001 - there is no other way
        if close is not None:
            # Before the view's own are closed: what is left of them may have to be read for the record.
            closers.append(close)
        closers.extend(response._resource_closers)  # noqa: SLF001 - no public name
        return made


def current(request: Any) -> BlockingRequest:
    """What a view may know of its keyed request: `key`, `derived_key()`, `nothing_done()`, `connection`.

    Takes Django's request or REST framework's. LookupError where the request carries no key.
    """
    visit = getattr(getattr(request, "_request", request), VISIT, None)
    if visit is None or visit.keyed is None or not visit.keyed.key:
        raise LookupError("this request is not under an idempotency key")
    keyed: BlockingRequest = visit.keyed
    return keyed


def _content_type(environ: Environ) -> bytes:
    told: str = environ.get("CONTENT_TYPE", "")
    return told.encode("latin-1")


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _note(*, request: Any = None, **_: object) -> None:
    visit = getattr(request, VISIT, None)
    if visit is not None:
        visit.raised = exc_info()[1]


got_request_exception.connect(_note, dispatch_uid="twicesafe")
