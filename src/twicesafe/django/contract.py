"""The contract of a view, and where it is found before the view is called.

The decorator does two things. It leaves the contract where the middleware finds it once the address is resolved,
whatever decorators, classes and frameworks stand around the view; and it has the claim made at the last moment, when
all of them have let the request through (R22, E1).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache, partial, wraps
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from django.http import HttpRequest, HttpResponse  # type: ignore[import-untyped]

from twicesafe.core.keys import Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.django.answers import lines_of
from twicesafe.django.configuration import ScopeOf, default_policy, who_is
from twicesafe.errors import ConfigurationError

View = TypeVar("View", bound=Callable[..., Any])

MARK: Final = "twicesafe_contract"
VISIT: Final = "twicesafe_visit"
"""What the middleware leaves on the request: a Visit, or None for a method that no contract takes keys with."""
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
known: Final[dict[str, Operation]] = {}
"""Every operation that a decorator made, by its name."""
DEPTH: Final = 6
"""Decorators that tell nobody what they decorate, one around the other."""


Rebuild: TypeAlias = Callable[[StoredResponse, Any], Any]
"""Given what is stored of the first answer, and the duplicate's request. Gives a response, or None: as stored."""


class Contract(NamedTuple):
    """What `idempotent` was told. `scope` None: what the settings say."""

    policy: Policy
    scope: ScopeOf | None
    name: str | None
    rebuild: Rebuild | None = None
    early: bool = False
    """The claim is made before the view's own decorators, because it has none of ours."""
    unsure: bool = False
    """It was found beside other callables that a decorator closes over, and one of those may be what is called."""

    def operation(self, view: object) -> Operation:
        """The operation that a view is under this contract."""
        rebuild = None if self.rebuild is None else partial(_rebuilt, self.rebuild)
        return Operation(self.name or name_of(view), self.policy, rebuild)


def idempotent(
    policy: Policy | None = None,
    *,
    name: str | None = None,
    scope: ScopeOf | Scope | None = None,
    rebuild: Rebuild | None = None,
    **settings: Any,
) -> Callable[[View], View]:
    """The contract of the view below it: a policy, settings of one, or both, on top of settings.TWICESAFE["POLICY"].

    Put it next to the view, below every decorator that may refuse a request. `name` is the view's dotted path by
    default; operators see it. `scope` says who the caller is where it is not whom the settings say. `rebuild` makes the
    answer to a duplicate anew, where the stored one is not kept or `duplicates="rebuilt"`.
    """
    contract = contract_from(policy, name, scope, settings)._replace(rebuild=rebuild)

    def decorate(view: View) -> View:
        return cast("View", entering(view, contract, contract.operation(view)))

    return decorate


def contract_from(
    policy: object, name: str | None, scope: ScopeOf | Scope | None, settings: dict[str, Any]
) -> Contract:
    """ConfigurationError for what cannot be a contract."""
    if policy is not None and not isinstance(policy, Policy):
        raise ConfigurationError("write @idempotent(), with parentheses: settings and a policy go between them")
    chosen = (policy or default_policy()).but(**settings)
    safe = sorted(SAFE & chosen.methods)
    if safe:
        raise ConfigurationError(f"{safe[0]} takes no key: it changes nothing, and is never claimed")
    return Contract(chosen, None if scope is None else who_is(scope), name)


def entering(view: Callable[..., Any], contract: Contract, operation: Operation) -> Callable[..., Any]:
    """The view, with a claim before its first line."""
    if isinstance(view, type):
        raise ConfigurationError(
            f'{view.__name__} is a class: decorate a method of it, or @method_decorator(idempotent(), name="dispatch")'
        )
    if inspect.iscoroutinefunction(view):

        @wraps(view)
        async def entered(*args: Any, **kwargs: Any) -> Any:
            visit = visit_of(args)
            call = partial(view, *args, **kwargs)
            return await (call() if visit is None else visit.arun(contract, operation, call))

    else:

        @wraps(view)
        def entered(*args: Any, **kwargs: Any) -> Any:
            visit = visit_of(args)
            call = partial(view, *args, **kwargs)
            # What an asynchronous class-based view dispatches by is no coroutine function, but is called as one.
            return call() if visit is None else visit.run(contract, operation, call)

    typed = _evaluated(view)
    if typed is not None:
        entered.__signature__ = typed  # type: ignore[attr-defined]
    setattr(entered, MARK, contract)
    known[operation.name] = operation
    return entered


def visit_of(args: tuple[Any, ...]) -> Any:
    """The visit of the request among a view's arguments: of the first two one is a request, Django's or around one."""
    for argument in args[:2]:
        request = getattr(argument, "_request", argument)
        if isinstance(request, HttpRequest):
            if not hasattr(request, VISIT):
                raise ConfigurationError(
                    "an idempotent view was called without the middleware, so nothing protects it: add "
                    '"twicesafe.django.IdempotencyMiddleware" to MIDDLEWARE, as the last one'
                )
            return getattr(request, VISIT)
    raise ConfigurationError("an idempotent view must take the request as its first argument, or after self")


def name_of(view: object) -> str:
    """A view's dotted path."""
    named = getattr(view, "view_class", view)
    name = getattr(named, "__qualname__", None) or type(named).__qualname__
    return f"{getattr(named, '__module__', '')}.{name}"


def _rebuilt(rebuild: Rebuild, stored: StoredResponse, request: Any) -> Any:
    given = rebuild(stored, request)
    if not isinstance(given, HttpResponse):
        return given
    return StoredResponse(given.status_code, lines_of(given), given.content)


def _evaluated(view: Callable[..., Any]) -> inspect.Signature | None:
    """The view's signature where its annotations are text, which frameworks would look up among our own globals."""
    if not any(isinstance(hint, str) for hint in getattr(view, "__annotations__", {}).values()):
        return None
    try:
        return inspect.signature(view, eval_str=True)
    except (NameError, TypeError, ValueError):
        return None


# --- finding it ------------------------------------------------------------------------------------------------------


def contract_of(callback: Any, method: str) -> Contract | None:
    """The contract that a request of `method` comes under when `callback`, from the URLconf, is called."""
    return _found(callback, method) if isinstance(callback, Hashable) else _find(callback, method)


def _find(callback: Callable[..., Any], method: str) -> Contract | None:
    for place in _places(callback, method):
        found = _marked(place, method)
        if found is not None:
            return found
    return None


_found: Final = lru_cache(maxsize=4096)(_find)


def _places(callback: Callable[..., Any], method: str) -> Iterator[object]:
    """Where a contract may stand: the more specific first."""
    # REST framework calls a viewset's class another name, and its actions are methods under other names.
    view_class = getattr(callback, "view_class", None) or getattr(callback, "cls", None)
    if view_class is not None:
        actions = getattr(callback, "actions", None) or {}
        yield getattr(view_class, actions.get(method.lower(), method.lower()), None)
        yield view_class
    yield callback


def authenticates_within(callback: Callable[..., Any]) -> bool:
    """Whether it is a view of REST framework's or of Ninja's: before it is called, nobody knows its caller."""
    if hasattr(getattr(callback, "cls", None), "initialize_request"):
        return True
    return any(isinstance(getattr(inner, "operations", None), list) for inner in _enclosed(callback))


def _enclosed(place: object) -> Iterator[object]:
    for cell in getattr(place, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def _marked(place: object, method: str, depth: int = DEPTH) -> Contract | None:
    """Its own mark, or one of what it closes over: `api_view`, Ninja and plain decorators say no more of what they
    call."""
    contract: Contract | None = getattr(place, MARK, None)
    if contract is not None or not depth:
        return contract
    alone = True
    for inner in _enclosed(place):
        # Of Ninja's view functions each holds all operations of one path.
        operations = getattr(inner, "operations", None)
        if isinstance(operations, list):
            inner = next((one.view_func for one in operations if method in one.methods), None)
        if callable(inner) and not isinstance(inner, type):
            found = _marked(inner, method, depth - 1)
            alone = alone and found is not None
            contract = contract or found
    return contract if contract is None or alone else contract._replace(unsure=True)
