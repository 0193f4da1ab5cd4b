"""Who may look: passwords, visits and the attempts at them. Nobody may until somebody says who.

A visit is a cookie that this application signed; nothing is kept about it but which ones were ended. Its signature is
of the person's stored password too, so that a changed password ends all of that person's visits.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from base64 import b64encode as _b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Final, NamedTuple

from twicesafe.errors import ConfigurationError

LONG_ENOUGH: Final = 12
"""Characters of a password."""
SECRET: Final = 32
"""Bytes that a secret has at least."""
LASTS: Final = 12 * 3600
"""Seconds that a visit lasts."""
TRIES: Final = 10
"""Wrong passwords from one address within PERIOD."""
TRIES_OF_ALL: Final = 100
"""The same, from all addresses together."""
PERIOD: Final = 300
"""Seconds."""
REMEMBERED: Final = 10_000
"""Ended visits, and addresses, that are kept in mind."""

COST: Final = (2**15, 8, 3)
"""Of scrypt: 32 MiB, and a few tenths of a second."""

MADE: Final = 64
"""Bytes of a hash."""
MOST: Final = 2**28
"""Bytes that scrypt may take."""
LONGEST: Final = 2**23
"""Costs, all multiplied: ten times those of COST."""

_FORM: Final = re.compile(r"scrypt\$(\d{1,9})\$(\d{1,9})\$(\d{1,9})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)")
_NAME: Final = re.compile(r"[^\s:]{1,100}")


class Visit(NamedTuple):
    """A browser that was here before. `name` is empty until somebody has signed in."""

    id: str
    name: str
    since: int


def hash_password(password: str, cost: tuple[int, int, int] = COST) -> str:
    """What is kept of a password: `scrypt$...`. ConfigurationError for a short one."""
    if len(password) < LONG_ENOUGH:
        raise ConfigurationError(f"a password has {LONG_ENOUGH} characters at least")
    salt = secrets.token_bytes(16)
    return "$".join(["scrypt", *map(str, cost), _text(salt), _text(_scrypt(password, salt, cost))])


class People:
    """Those who may sign in: names, and what `hash_password` made of their passwords."""

    def __init__(self, people: Mapping[str, str]) -> None:
        for name, kept in people.items():
            if not _NAME.fullmatch(name):
                raise ConfigurationError(f"a person's name has no spaces and no colons, and is not {name!r}")
            if not _is_kept(kept):
                raise ConfigurationError(
                    f"what is kept of {name}'s password is not of hash_password(): `twicesafe dashboard --hash NAME` "
                    "makes it"
                )
        self._people = dict(people)
        # Whoever tries a name that is not there waits as long as for one that is.
        salt = _text(secrets.token_bytes(16))
        cost = next(iter(people.values())).split("$")[1:4] if people else map(str, COST)
        self._nobody = "$".join(["scrypt", *cost, salt, _text(secrets.token_bytes(64))])
        self._one_at_a_time = Lock()

    def __bool__(self) -> bool:
        return bool(self._people)

    def kept(self, name: str) -> str:
        """What is kept of somebody's password; empty for nobody's."""
        return self._people.get(name, "")

    def is_right(self, name: str, password: str) -> bool:
        """Whether it is their password. As slow as COST, and as slow for a name that is not there."""
        found = _FORM.fullmatch(self._people.get(name, self._nobody))
        assert found is not None
        cost = (int(found[1]), int(found[2]), int(found[3]))
        with self._one_at_a_time:
            made = _scrypt(password, b64decode(found[4]), cost)
        return hmac.compare_digest(made, b64decode(found[5]))


class Visits:
    """Makes and reads cookies. `secret` signs them; without one it is drawn, and visits end with this process."""

    def __init__(self, people: People, secret: str | bytes = b"", *, clock: Callable[[], float] = time.time) -> None:
        given = secret.encode() if isinstance(secret, str) else secret
        if given and len(given) < SECRET:
            raise ConfigurationError(f"the secret must have {SECRET} bytes at least, drawn at random")
        self._secret = hashlib.sha256(b"twicesafe dashboard\0" + (given or secrets.token_bytes(SECRET))).digest()
        self._people = people
        self._clock = clock
        self._ended: OrderedDict[str, None] = OrderedDict()

    def begin(self, name: str = "") -> Visit:
        """A new visit: of nobody, or of somebody who has just signed in."""
        return Visit(secrets.token_urlsafe(18), name, int(self._clock()))

    def cookie(self, visit: Visit) -> str:
        """What a browser keeps of it."""
        name = urlsafe_b64encode(visit.name.encode()).decode().rstrip("=")
        told = f"{visit.id}.{visit.since}.{name}"
        return f"{told}.{self._sign('visit', told, visit.name)}"

    def read(self, cookie: str) -> Visit | None:
        """The visit; None where there is none, or it was changed, is over, or was ended."""
        told, _, signed = cookie.rpartition(".")
        parts = told.split(".")
        if len(parts) != 3 or not parts[1].isascii() or not parts[1].isdigit():
            return None
        try:
            name = urlsafe_b64decode(parts[2] + "=" * (-len(parts[2]) % 4)).decode()
        except ValueError:
            return None
        if not hmac.compare_digest(signed.encode(), self._sign("visit", told, name).encode()):
            return None
        over = self._clock() - int(parts[1]) >= LASTS
        if over or parts[0] in self._ended or (name and not self._people.kept(name)):
            return None
        return Visit(parts[0], name, int(parts[1]))

    def end(self, visit: Visit) -> None:
        """It is over, whoever still has the cookie. In this process; another one does not hear of it."""
        self._ended[visit.id] = None
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def form_proof(self, visit: Visit, who: str) -> str:
        """What each form carries, and no other site can know."""
        return self._sign("form", f"{visit.id}\0{who}", visit.name)

    def is_proof(self, given: str, visit: Visit, who: str) -> bool:
        """Whether a form came from a page of this visit's."""
        return hmac.compare_digest(given.encode(), self.form_proof(visit, who).encode())

    def _sign(self, purpose: str, told: str, name: str) -> str:
        text = "\0".join([purpose, told, self._people.kept(name)])
        return urlsafe_b64encode(hmac.digest(self._secret, text.encode(), "sha256")).decode().rstrip("=")


class Attempts:
    """Wrong passwords. `clock` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by: OrderedDict[str, list[float]] = OrderedDict()

    def wait(self, address: str) -> int:
        """For how many seconds no password is looked at that comes from this address; 0 where one is."""
        now = self._clock()
        waits = [0.0]
        for who, most in ((address, TRIES), ("", TRIES_OF_ALL)):
            tried = [at for at in self._by.get(who, ()) if now - at < PERIOD]
            if len(tried) >= most:
                waits.append(PERIOD - (now - tried[-most]))
        return -int(-max(waits) // 1)

    def wrong(self, address: str) -> None:
        """One more."""
        now = self._clock()
        for who, most in ((address, TRIES), ("", TRIES_OF_ALL)):
            self._by.setdefault(who, []).append(now)
            del self._by[who][:-most]
            self._by.move_to_end(who)
        while len(self._by) > REMEMBERED:
            self._by.popitem(last=False)

    def right(self, address: str) -> None:
        """The last one from this address was not wrong after all."""
        for who in (address, ""):
            if self._by.get(who):
                self._by[who].pop()


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    n, r, p = cost
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=MOST, dklen=MADE)


def _is_kept(text: str) -> bool:
    """Whether it is what hash_password() makes, whole, and such as can be compared with."""
    found = _FORM.fullmatch(text)
    if found is None:
        return False
    n, r, p = (int(found[place]) for place in (1, 2, 3))
    try:
        salt, made = (b64decode(found[place], validate=True) for place in (4, 5))
    except ValueError:
        return False
    fits = r > 0 and p > 0 and 128 * r * (n + p + 2) <= MOST and n * r * p <= LONGEST
    # As scrypt wants it.
    power = n > 1 and n & (n - 1) == 0 and n.bit_length() <= 16 * r
    return fits and power and len(salt) >= 8 and len(made) == MADE


def _text(raw: bytes) -> str:
    return _b64encode(raw).decode()
