"""What one call to another system may send, and what is known of what became of it.

A call has one key, and a key names one request. Two that differ under one key would be one to the provider, or a
refusal; under two keys nobody could tell which of them a broken-off attempt had sent. So a call asks for one thing. The
same may be sent again within it, by whatever layer: it is the same intent, and the provider knows it by its key.

What is known never turns worse into better: once something may have been carried out, only a success, or an answer that
the provider marks as the recorded one, tells what became of it (R37).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final, NamedTuple

from twicesafe.core.contract import Contract, contract_of
from twicesafe.core.journal import OPEN, UNSENT, Journal
from twicesafe.core.problems import ATTEMPT, ATTEMPT_LIMIT, OPERATION_ID
from twicesafe.core.provider import Fate, Heard, Provider
from twicesafe.errors import CallRefusedError

_OF_CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_OF_AN_ATTEMPT: Final = frozenset(
    {
        *(name.decode("ascii") for name in (ATTEMPT, ATTEMPT_LIMIT, OPERATION_ID)),
        *("b3", "baggage", "traceparent", "tracestate", "uber-trace-id", "x-amzn-trace-id"),
        *("x-b3-flags", "x-b3-parentspanid", "x-b3-sampled", "x-b3-spanid", "x-b3-traceid"),
        *("connection", "content-length", "date", "host"),
    }
)
"""Headers in which two attempts may differ: they ask for nothing."""

TOO_LATE: Final = (
    "this process stood still: somebody else may have gone on with the operation meanwhile, or the other system may "
    "have forgotten the key"
)

Origin = tuple[str, str, int | None]


class Asked(NamedTuple):
    """One request, as far as it says what is asked for."""

    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Asking(NamedTuple):
    """One request that wants to be sent."""

    method: str
    url: str
    origin: Origin
    headers: Iterable[tuple[str, str]]
    """Names in lower case."""
    body: bytes
    redirected_from: Origin | None = None


class Outgoing:
    """The one thing that a call asks another system for. `derive` gives the key of a name; `to` None takes any system.

    `again`: an earlier attempt may have sent it. `in_time`: whether a request may still begin; None: at any time.
    """

    def __init__(
        self,
        derive: Callable[[str], str],
        name: str,
        to: Provider | None = None,
        *,
        again: bool = False,
        in_time: Callable[[], bool] | None = None,
    ) -> None:
        self._derive = derive
        self.name = name
        self.to = to
        self.again = again
        self._in_time = in_time
        self.over = False
        """The call has ended: nothing more is sent under its key."""
        self.reason = ""
        """The last answer, or failure, in a word."""
        self.last: Fate | None = None
        """What the last answer says of its own attempt, whatever earlier ones may have done."""
        self._asked: dict[str, Asked] = {}
        self._credentials: tuple[tuple[str, str], ...] = ()
        self._addresses: set[str] = set()
        self._under_way = 0
        self._fate: Fate | None = None

    @cached_property
    def derived(self) -> str:
        """The key as it is derived."""
        return self._derive(self.name)

    @property
    def key(self) -> str:
        """What `send` and `look_up` are given."""
        return self.derived if self.to is None else self.to.fitted(self.derived)

    @property
    def fate(self) -> Fate | None:
        """What is known; None where nothing was asked for."""
        return Fate.UNKNOWN if self._under_way and self._fate is not Fate.DONE else self._fate

    def key_for(self, provider: Provider) -> str:
        """The key as this provider takes it. CallRefusedError where the call is to another."""
        if self.to is not None and not self.to.takes_keys_as(provider):
            raise self.refused(f"it goes to {provider.name}, and the call is to {self.to.name}")
        return provider.fitted(self.derived)

    def admit(self, asking: Asking) -> None:
        """This is about to be sent. CallRefusedError where it is not what the call asked for before.

        `heard` or `failed` has to follow; until then it may be carried out at any moment.
        """
        if self.over:
            raise self.refused("the call is over")
        self.check_in_time()
        headers = sorted(asking.headers)
        credentials = tuple(line for line in headers if line[0] in _OF_CREDENTIALS)
        asked = Asked(
            asking.method,
            tuple(line for line in headers if line[0] not in _OF_AN_ATTEMPT and line[0] not in _OF_CREDENTIALS),
            asking.body,
        )
        if asking.redirected_from is not None and asking.redirected_from != asking.origin:
            raise self.refused("it was redirected to another origin, where its key means nothing")
        # In one step: two threads may ask at once.
        first = self._asked.setdefault("", asked)
        if first is asked:
            self._credentials = credentials
        else:
            if first != asked or not (asking.url in self._addresses or asking.redirected_from is not None):
                raise self.refused("it differs from what the call has sent: make one call for each request")
            if credentials != self._credentials and self.fate not in (Fate.TURNED_AWAY, Fate.UNSENT):
                raise self.refused("its credentials differ from those of an attempt that may have been carried out")
            self._credentials = credentials
        self._addresses.add(asking.url)
        self._under_way += 1
        self.last = Fate.UNKNOWN

    def heard(self, heard: Heard, reason: str, *, sent_before: bool = False) -> None:
        """An answer came. `sent_before`: a layer below had sent the same already."""
        self._under_way -= 1
        self.last = fate = heard.fate
        if fate is not Fate.DONE and not heard.replayed and (self._perhaps_done or sent_before):
            fate = Fate.UNKNOWN
        self._settle(fate, reason)

    def failed(self, reason: str, *, unsent: bool) -> None:
        """No answer came. `unsent`: it provably never left."""
        self._under_way -= 1
        self.last = Fate.UNSENT if unsent else Fate.UNKNOWN
        self._settle(Fate.UNSENT if unsent and not self._perhaps_done else Fate.UNKNOWN, reason)

    def refused(self, why: str) -> CallRefusedError:
        """The error for a request of this call that is not sent."""
        self.not_sent()
        return CallRefusedError(f"the request was not sent, because {why} (call {self.name!r})")

    def check_in_time(self) -> None:
        """CallRefusedError where it is too late to begin a request: for the moment before its first byte leaves."""
        if self._in_time is not None and not self._in_time():
            raise self.refused(TOO_LATE)

    def not_sent(self) -> None:
        """A request of this call was given up before it was sent. Nothing was sent, unless something was before."""
        if self.fate is None:
            self._fate = self.last = Fate.UNSENT
            self.reason = "not sent"

    @property
    def _perhaps_done(self) -> bool:
        return self.again or self._under_way > 0 or self._fate is Fate.UNKNOWN

    def _settle(self, fate: Fate, reason: str) -> None:
        if self._fate is not Fate.DONE:
            self._fate, self.reason = fate, reason


def may_have_been_sent(journal: Journal, name: str) -> bool:
    """Whether an earlier attempt left the call `name` open. Only the last entry may be."""
    last = journal.entries[-1:]
    return bool(last) and last[0].name == name and last[0].standing == OPEN and last[0].result != UNSENT


def is_exempt(method: str, said: str | None) -> bool:
    """Whether a request goes out as it is, in a call and outside: it changes nothing, or its caller answers for it.

    `said` is the contract that the request itself names. ValueError for none that there is.
    """
    if said is None:
        return contract_of(method, (), keyed=False) is Contract.SAFE
    return Contract(said) is not Contract.KEYED


NO_CALL: Final = (
    "is not made in a call of an operation, so it has no key and could be carried out twice: make it in the function "
    "that a call() sends, or say what it may bear, as in extensions={'twicesafe.contract': 'never'}"
)
