"""What a plain function under a key has in common with a request under one: a fingerprint, and a recorded answer.

The fingerprint covers the function's name and its arguments, bound to its parameters: defaults filled in, whether by
position or by name. The answer is status 200 with the kept result; the statuses are never sent anywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import partial
from hashlib import sha256
from inspect import BoundArguments, Parameter, Signature
from typing import Any, Final
from weakref import WeakKeyDictionary

from twicesafe.core.annotations import bare, called, hints_of
from twicesafe.core.fingerprint import RAW, GivenFingerprint
from twicesafe.core.steps import Answer
from twicesafe.core.values import Values
from twicesafe.errors import (
    AmbiguousWriteError,
    ConfigurationError,
    FailedBeforeError,
    InProgressError,
    KeyReusedError,
    OutcomeUnknownError,
    ResultNotKeptError,
    SchemaError,
    StoreUnavailableError,
    TwicesafeError,
    ValueNotKeptError,
)

DONE: Final = 200


class Function:
    """One function's contract. ConfigurationError for one that cannot be run once: its annotations, or its kind.

    `without` names parameters that are no part of what is asked for: a database session, a logger.
    """

    __slots__ = ("_arguments", "_given", "_results", "_signature", "_whole", "_without", "name")

    def __init__(self, function: Callable[..., Any], *, name: str | None = None, without: Collection[str] = ()) -> None:
        real = bare(function)
        if inspect.isgeneratorfunction(real) or inspect.isasyncgenfunction(real):
            raise ConfigurationError(
                f"{called(real)} is a generator: what it gives over time cannot be kept. Give a list"
            )
        self.name = name or f"{real.__module__}.{called(real)}"
        self._signature = _signature_of(function)
        # Arguments that were given beforehand say what is asked for as well.
        self._given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._whole = self._signature
        if isinstance(function, partial):
            self._given, self._whole = (function.args, function.keywords), _signature_of(function.func)
        strangers = set(without) - set(self._whole.parameters)
        if strangers:
            raise ConfigurationError(f"without names {min(strangers)!r}, which is no parameter of {self.name}")
        self._without = frozenset(without)
        hints = hints_of(real)
        self._results = Values(hints.pop("return", Any))
        self._arguments = Values(*(hint for parameter, hint in hints.items() if parameter not in self._without))

    def fingerprint(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> GivenFingerprint:
        """TypeError for arguments that the function does not take, ValueNotKeptError naming one that is no value."""
        first, beforehand = self._given
        bound = self._whole.bind(*first, *arguments, **{**beforehand, **named})
        bound.apply_defaults()
        digest = sha256(b"function\0" + self.name.encode("utf-8", "surrogatepass"))
        for parameter, value in bound.arguments.items():
            if parameter in self._without:
                continue
            try:
                kept = self._arguments.encode(value, canonical=True)
            except ValueNotKeptError as error:
                raise ValueNotKeptError(
                    f"the argument {parameter!r} of {self.name} is no part of a fingerprint: {error}. Name it in "
                    "without= if it does not say what is asked for"
                ) from None
            digest.update(b"%d:%b%d:" % (len(parameter), parameter.encode("utf-8"), len(kept)))
            digest.update(kept)
        return GivenFingerprint(bytes([RAW]) + digest.digest())

    def kept_arguments(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
        """The arguments as bytes, for whoever goes on with the call. Those that are left out come from defaults."""
        bound = self._signature.bind(*arguments, **named)
        bound.apply_defaults()
        for parameter in self._without:
            bound.arguments.pop(parameter, None)
        return self._arguments.encode(dict(bound.arguments))

    def arguments(self, kept: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What `kept_arguments` wrote. ValueNotKeptError where the function takes others by now."""
        found = self._arguments.decode(kept)
        bound = BoundArguments(self._signature, found)
        bound.apply_defaults()
        if bound.arguments.keys() != found.keys() | self._signature.parameters.keys():
            raise ValueNotKeptError(f"{self.name} takes other arguments by now than those it was called with")
        return bound.args, bound.kwargs

    def check_resumable(self) -> None:
        """ConfigurationError where a worker could not call it again from what is kept."""
        for name in self._without & self._signature.parameters.keys():
            if self._signature.parameters[name].default is Parameter.empty:
                raise ConfigurationError(
                    f"{self.name} can be resumed without its caller, so {name!r}, which is not kept, needs a default"
                )

    def kept(self, result: object) -> bytes | None:
        """The result as bytes; None where it cannot be kept, which is found out too late to undo the work."""
        try:
            return self._results.encode(result)
        except ValueNotKeptError:
            return None

    def outcome(self, answer: Answer) -> Any:
        """What this answer is for a caller: the recorded result, or an error."""
        if answer.kind == "replayed" and 200 <= answer.status < 300 and answer.body:
            # A person who settles it may well say 201, and may have no result.
            return self._results.decode(answer.body)
        raise self._refusal(answer)

    def _refusal(self, answer: Answer) -> TwicesafeError:
        match answer.kind:
            case "replayed" | "handler-failed" if answer.status >= 300:
                return FailedBeforeError(f"{self.name} has run under this key and raised: it is not run again")
            case "result-not-kept" | "replayed" | "already-done":
                return ResultNotKeptError(f"{self.name} has run under this key; its result is not kept")
            case "in-progress":
                return InProgressError(f"{self.name} is running under this key: ask again with the same key")
            case "key-reused":
                return KeyReusedError(
                    f"this key was used before, for another function than {self.name} or other arguments"
                )
            case "outcome-unknown":
                return OutcomeUnknownError(
                    f"nobody knows what {self.name} did under this key: a new key could do it twice"
                )
            case "commit-unknown":
                return AmbiguousWriteError(f"{self.name} happened whole or not at all: ask again with the same key")
            case "store-misconfigured":
                return SchemaError(
                    f"{self.name} cannot be protected, so nothing was done: the log says what is missing"
                )
            case _:
                return StoreUnavailableError(f"{self.name} is not protected right now, so nothing was done: ask again")


def result_values(function: Callable[..., Any], step: str) -> Values:
    """The values that a step's function gives. ConfigurationError where they can never be kept."""
    known = getattr(function, "__func__", function)
    try:
        found = _RESULTS.get(known)
    except TypeError:
        # What cannot be referred to weakly is looked at each time.
        return _result_values(function, step)
    if found is None:
        found = _RESULTS[known] = _result_values(function, step)
    return found


_RESULTS: Final[WeakKeyDictionary[Any, Values]] = WeakKeyDictionary()
"""Reading annotations takes as long as a statement on its way to a database."""


def _result_values(function: Callable[..., Any], step: str) -> Values:
    real = bare(function)
    if inspect.isgeneratorfunction(real) or inspect.isasyncgenfunction(real):
        raise ConfigurationError(f"the step {step!r} is a generator: what it gives over time cannot be kept")
    return Values(hints_of(real)["return"])


def _signature_of(function: Callable[..., Any]) -> Signature:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        # Some built-in ones tell nobody what they take.
        return Signature([Parameter("arguments", Parameter.VAR_POSITIONAL), Parameter("named", Parameter.VAR_KEYWORD)])
