"""Which other layers retry, above and below this one: `audit(client)`. It sends nothing and imports nothing (R40).

    for finding in audit(pay, client, policy=patient):      # from the outermost in
        print(finding)

    requests.HTTPAdapter at Session.adapters['https://'] makes 4 attempts of its own: 3 x 4 = 12. Set ...

It knows httpx, httpx2, requests, niquests, urllib3, aiohttp, botocore, the SDKs of OpenAI, Anthropic and Stripe,
tenacity, httpx-retries and aiohttp-retry, by the names of their classes and what those keep. It does not see retries in
functions that hide them, proxies, service meshes, load balancers, other processes, and people.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from twicesafe.client._retriers import Inner, ours_in, seen_in
from twicesafe.core.retry_policy import RetryPolicy

__all__ = ["Finding", "audit"]

_DEEP: Final = 12
"""Parts within parts that are looked into."""


class Finding(NamedTuple):
    """One layer that retries beside this package's."""

    what: str
    """Its class."""
    where: str
    """The way to it from what was handed in."""
    attempts: int | None
    """How many it makes of one request; None where that has no limit."""
    layers: tuple[int | None, ...]
    """The attempts of all layers from the outermost to this one, or to this package's where that is further in."""
    which: str
    """Which requests or failures it repeats, where not all."""
    multiplies: bool
    """Whether more requests arrive, and not only more connections are tried."""
    advice: str
    """What to set."""

    @property
    def hits(self) -> int | None:
        """The most requests that one operation can become by here; None where that has no limit."""
        product = 1
        for attempts in self.layers:
            if attempts is None:
                return None
            product *= attempts
        return product

    def __str__(self) -> str:
        own = "attempts without limit" if self.attempts is None else f"{self.attempts} attempts"
        which = f" {self.which}" if self.which else ""
        product = " x ".join("any" if attempts is None else str(attempts) for attempts in self.layers)
        hits = "any number" if self.hits is None else str(self.hits)
        kind = "" if self.multiplies else " connections"
        return f"{self.what} at {self.where} makes {own} of its own{which}: {product} = {hits}{kind}. {self.advice}."


def audit(*things: Any, policy: RetryPolicy | None = None) -> list[Finding]:
    """What retries in these clients, sessions, transports and decorated functions, given from the outermost in.

    `policy` is the one that `send()` is given with the last of them; a retry transport within it says its own. Empty
    where there is one layer.
    """
    findings: list[Finding] = []
    chain: tuple[int | None, ...] = ()
    ours = (policy or RetryPolicy()).attempts
    for number, thing in enumerate(things, 1):
        innermost = number == len(things) and not isinstance(thing, (FunctionType, MethodType))
        if innermost and _ours_within(thing) is None:
            chain = (*chain, ours)
        below = None if innermost else ours
        found = list(_findings(thing, getattr(thing, "__name__", type(thing).__name__), chain, below, _DEEP))
        findings += found
        chain = (*chain, *(finding.attempts for finding in found))
    return findings


def _findings(thing: Any, where: str, chain: tuple[int | None, ...], below: int | None, deep: int) -> Iterator[Finding]:
    """From a thing inwards. `chain`: the attempts of all layers around it; `below`: of ours, where that comes later."""
    ours = ours_in(thing)
    if ours is not None:
        chain = (*chain, ours)
    inner = []
    for seen in seen_in(thing):
        if isinstance(seen, Inner):
            inner.append(seen)
            continue
        chain = (*chain, seen.attempts)
        later = below if below is not None else _ours_within(thing)
        layers = chain if later is None else (*chain, later)
        what = seen.what or _name(thing)
        yield Finding(what, where, seen.attempts, layers, seen.which, seen.multiplies, seen.advice)
    for part in inner:
        if deep:
            yield from _findings(part.thing, f"{where}.{part.where}", chain, below, deep - 1)


def _ours_within(thing: Any, deep: int = _DEEP) -> int | None:
    """The attempts of this package's layer, in a thing or in what it sends through."""
    ours = ours_in(thing)
    if ours is None and deep:
        for seen in seen_in(thing):
            if isinstance(seen, Inner) and (ours := _ours_within(seen.thing, deep - 1)) is not None:
                return ours
    return ours


def _name(thing: Any) -> str:
    kind = thing if isinstance(thing, ModuleType) else type(thing)
    package = kind.__module__.partition(".")[0] if isinstance(kind, type) else ""
    return f"{package}.{kind.__name__}" if package else kind.__name__
