"""The Lua scripts, and what a store asks a server for, whoever carries it there."""

from __future__ import annotations

import re
from collections.abc import Generator
from hashlib import sha1
from importlib.resources import files
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

R = TypeVar("R")


class Script(NamedTuple):
    """A script as a server knows it."""

    text: bytes
    sha: bytes
    """By which it is asked for once the server has seen it. A server forgets scripts when it restarts, fails over or is
    told to: then the text is sent once more."""
    forms: tuple[bytes, ...]
    """The whole command, by the number of words that it is given; `%` puts in the length of each and itself."""


class Ask(NamedTuple):
    """One command about one key. `script` None: `words` are the whole command; else its arguments."""

    key: bytes
    script: Script | None
    words: tuple[bytes, ...]
    writes: bool
    """Whether a lost reply leaves open what became of it."""
    node: Any = None
    """Ask this server, whatever the key."""

    def command(self) -> bytes:
        """What is sent."""
        if self.script is None:
            return request(*self.words)
        words = (self.key, *self.words)
        return self.script.forms[len(words)] % tuple(chain.from_iterable(zip(map(len, words), words, strict=True)))

    def command_in_full(self) -> bytes:
        """The same for a server that has not seen the script."""
        assert self.script is not None
        return request(b"EVAL", self.script.text, b"1", self.key, *self.words)


def request(*words: bytes) -> bytes:
    """A command as it is sent. redis-py's way, which takes words of any type, takes a quarter of an exchange's time."""
    return b"".join([b"*%d\r\n" % len(words), *[b"$%d\r\n%b\r\n" % (len(word), word) for word in words]])


class Primaries(NamedTuple):
    """Which servers have keys. Answered with a list of them, in an order that lasts."""


Asking: TypeAlias = Generator[Any, Any, R]
"""Yields what is asked for, and is sent its answer or thrown the StoreError that came of it."""

MOST: Final = 9
"""Words that a script is given, at most; the first is its key."""

_FOLDER: Final = files("twicesafe.stores") / "lua"
_FUNCTION: Final = re.compile(rb"^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(rb"^--.*\n", re.MULTILINE)
_LAYOUT: Final = (_FOLDER / "layout.lua").read_bytes()


def _script(name: str) -> Script:
    """With those functions of layout.lua that it uses: a server makes all of a script's anew for each call."""
    text = _COMMENT.sub(b"", (_FOLDER / f"{name}.lua").read_bytes())
    for function in reversed(list(_FUNCTION.finditer(_LAYOUT))):
        if re.search(rb"\b%b\(" % function[1], text):
            text = function[0] + text
    text = b"local name = KEYS[1]\n" + text
    sha = sha1(text, usedforsecurity=False).hexdigest().encode()
    begun = b"\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n" % sha
    return Script(text, sha, tuple([b"*%d%b" % (3 + n, begun) + b"$%d\r\n%b\r\n" * n for n in range(MOST + 1)]))


CLAIM: Final = _script("claim")
FIND: Final = _script("find")
TAKE_OVER: Final = _script("take_over")
RENEW: Final = _script("renew")
START_ANSWER: Final = _script("start_answer")
COMPLETE: Final = _script("complete")
RELEASE: Final = _script("release")
HOLD: Final = _script("hold")
HOLD_STALE: Final = _script("hold_stale")
SETTLE_ANSWERED: Final = _script("settle_answered")
SETTLE: Final = _script("settle")
FORGET: Final = _script("forget")
STALE: Final = _script("stale")
LEASE_LEFT: Final = _script("lease_left")
