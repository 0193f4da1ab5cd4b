"""Who a key belongs to, how it is written, and what is looked up.

A key names an intent (R1). Bare and quoted forms of one key are one identity (R4); the format is checked before any
look-up, so that every store gives the same answer. The only look-up value is the digest of the scoped key: parts are
length-prefixed before hashing, so no two tuples can collide (R7), and no key is ever too long for an index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b, sha256
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from twicesafe.errors import ConfigurationError, InvalidKeyError, ScopeError

MAX_KEY_LENGTH: Final = 255
"""Stripe's, Whop's and ACP's limit, and the longest the field is used to. Shorter ones are a policy's choice."""

MAX_SCOPE_LENGTH: Final = 255

NO_SCOPE: Final = (
    f"the caller's identity must be a non-empty string of at most {MAX_SCOPE_LENGTH} characters, or PUBLIC where "
    "everybody may share keys"
)


class KeySyntax(StrEnum):
    """The published format of an operation's keys (R4)."""

    OPAQUE = "opaque"
    """1 to 255 printable ASCII characters, blanks inside allowed."""
    UUID = "uuid"
    """A UUID of any version in its hyphenated form; compared in lower case."""


_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_ESCAPED = re.compile(r'\\(["\\])')
_MARKS = re.compile(r"[ -/:-@\[-`{-~]*")


class KeyRule(NamedTuple):
    """How an operation's keys are written. `max_length` counts characters after unquoting."""

    syntax: KeySyntax = KeySyntax.OPAQUE
    min_length: int = 1
    max_length: int = MAX_KEY_LENGTH
    punctuation: str | None = None
    """Opaque keys hold letters, digits and these characters; None allows all of printable ASCII."""

    def checked(self) -> KeyRule:
        """This rule with its syntax as the enum's member, or ConfigurationError."""
        try:
            syntax = KeySyntax(self.syntax)
        except ValueError:
            choices = ", ".join(KeySyntax)
            raise ConfigurationError(f"key syntax must be one of {choices}, not {self.syntax!r}") from None
        for name in ("min_length", "max_length"):
            length = getattr(self, name)
            if not isinstance(length, int):
                raise ConfigurationError(f"key {name} must be a whole number, not {length!r}")
        marks: object = self.punctuation
        if marks is not None and not (isinstance(marks, str) and _MARKS.fullmatch(marks)):
            raise ConfigurationError(f"key punctuation must be printable ASCII, no letters or digits, not {marks!r}")
        if not 1 <= self.min_length <= self.max_length <= MAX_KEY_LENGTH:
            raise ConfigurationError(
                f"key lengths must satisfy 1 <= min_length <= max_length <= {MAX_KEY_LENGTH}, "
                f"not {self.min_length} to {self.max_length}"
            )
        return self._replace(syntax=syntax)


def plain_key(rule: KeyRule) -> Callable[[bytes], object]:
    """A test for header lines which, where it holds, are the key that parse_key would find: most are."""
    if rule.syntax is KeySyntax.UUID:
        shape = rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    elif rule.punctuation is None:
        shape = rb"[!#-~](?:[ -~]*[!-~])?"
    else:
        inside, ends = (b"0-9A-Za-z" + _in_class(rule.punctuation, without=blank) for blank in ("", " "))
        # What begins with a quote may be a string.
        shape = rb'(?!")[%b](?:[%b]*[%b])?' % (ends, inside, ends)
    return re.compile(rb"(?=.{%d,%d}\Z)%b" % (rule.min_length, rule.max_length, shape)).fullmatch


def _in_class(marks: str, *, without: str) -> bytes:
    """These characters as they are written between the brackets of a pattern."""
    return re.escape("".join(mark for mark in marks if mark != without)).encode("ascii")


def parse_key(lines: Sequence[bytes | str], rule: KeyRule) -> str | None:
    """The key that these header lines (or other carrier values) name, or None when there is no line at all.

    Two lines naming one key are one key; two naming different keys, and anything outside `rule`, are InvalidKeyError.
    An empty value is an error and never "no key".
    """
    if not lines:
        return None
    key = _parse_one(lines[0], rule)
    if len(lines) == 1:
        return key
    for line in lines[1:]:
        if _parse_one(line, rule) != key:
            raise InvalidKeyError("two different idempotency keys were sent with one request: send exactly one")
    return key


def _parse_one(line: bytes | str, rule: KeyRule) -> str:
    if isinstance(line, bytes):
        try:
            text = line.decode("ascii").strip(" \t")
        except UnicodeDecodeError:
            raise InvalidKeyError("the idempotency key holds a character outside printable ASCII") from None
    elif isinstance(line, str):
        text = line.strip(" \t")
    else:
        raise InvalidKeyError(f"the idempotency key must be text, not {type(line).__name__}")
    if text[:1] == '"':
        quoted = _QUOTED.fullmatch(text)
        if quoted is None:
            raise InvalidKeyError("the quoted idempotency key is not a structured-field string (RFC 8941, 3.3.3)")
        text = _ESCAPED.sub(r"\1", quoted[1])
    return check_key(text, rule)


def check_key(text: str, rule: KeyRule) -> str:
    """`text` in its one canonical form, or InvalidKeyError. The message never repeats the key."""
    if not isinstance(text, str):
        raise InvalidKeyError(f"the idempotency key must be text, not {type(text).__name__}")
    length = len(text)
    if not length:
        raise InvalidKeyError("the idempotency key is empty: send a new UUID for every new intent")
    if not rule.min_length <= length <= rule.max_length:
        raise InvalidKeyError(
            f"the idempotency key has {length} characters; this operation takes {rule.min_length} to {rule.max_length}"
        )
    # Of ASCII, printable means from blank to tilde.
    if not (text.isascii() and text.isprintable()) or text[0] == " " or text[-1] == " ":
        raise InvalidKeyError(
            "the idempotency key may hold printable ASCII only and neither begins nor ends with a blank"
        )
    if rule.syntax is KeySyntax.UUID:
        if _UUID.fullmatch(text) is None:
            raise InvalidKeyError("the idempotency key must be a UUID such as 8e03978e-40d5-43e8-bc93-6894a57f9324")
        return text.lower()
    if rule.punctuation is not None and not all(letter.isalnum() or letter in rule.punctuation for letter in text):
        marks = " ".join("blanks" if mark == " " else mark for mark in rule.punctuation)
        raise InvalidKeyError(f"the idempotency key may hold letters, digits{' and ' + marks if marks else ''} only")
    return text


class _Public:
    """The explicit scope of an operation that anybody may call. There is no implicit one (R6)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "PUBLIC"


PUBLIC: Final = _Public()
"""Say this, and only this, when an operation's keys are shared by all callers on purpose."""

Scope = str | _Public
"""A stable identity of the caller, known to the server: a user or tenant id. Never a token, never an address."""


_pack_lengths: Final = Struct(">HH").pack
"""Of the scope (at most 4 bytes a character) and of the key. The operation comes last and needs none."""
HINTED: Final = 16
"""Shorter keys are too easy to guess from a part of them."""
_new: Final = tuple.__new__
"""Makes a named tuple by one call instead of two."""


class ScopedKey(NamedTuple):
    """The identity of an intent. `digest` is the only value ever looked up."""

    digest: bytes
    scope: str
    hint: str


def scoped_key(scope: Scope, key: str, operation: str | None = None) -> ScopedKey:
    """Join scope and key (and the operation, where a policy wants a namespace per operation) into one identity.

    `scope` must be a non-empty string of at most 255 characters, or PUBLIC. Raises ScopeError otherwise: an empty
    identity would put everybody without one into a shared scope.
    """
    try:
        name, who = _named(scope)
    except TypeError:
        # What cannot be hashed is no identity.
        raise ScopeError(NO_SCOPE) from None
    what = key.encode("ascii")
    joined = _pack_lengths(len(who), len(what)) + who + what
    if operation is not None:
        joined += b"o" + operation.encode("utf-8", "surrogatepass")
    return _new(ScopedKey, (sha256(joined).digest(), name, "…" + key[-4:] if len(key) >= HINTED else "…"))


@lru_cache(maxsize=256)
def _named(scope: Scope) -> tuple[str, bytes]:
    if isinstance(scope, str) and 0 < len(scope) <= MAX_SCOPE_LENGTH:
        # Of a StrEnum, say, its text alone: stores know no other types.
        name = str.__str__(scope)
        return name, name.encode("utf-8", "surrogatepass")
    if scope is PUBLIC:
        # No identity is empty, so nobody else's keys have this length.
        return "", b""
    raise ScopeError(NO_SCOPE)


def key_hint(key: str) -> str:
    """What an operator may see of a key: its last four characters, and nothing of a short one."""
    return "…" + key[-4:] if len(key) >= HINTED else "…"


def derive(digest: bytes, call: str) -> str:
    """The key for one named downstream call of this intent (R25): the same on every attempt, unique across callers.

    36 characters in the shape of a UUID, the form every provider's length limit admits.
    """
    name = call.encode("utf-8")
    return _as_uuid(blake2b(b"%d:%b" % (len(name), name), digest_size=16, key=digest, person=b"twicesafe-call-1"))


def fitted(key: str, rule: KeyRule) -> str:
    """A key that `derive` made, as `rule` takes it: all of it, in fewer characters or others where that has to be.

    The same on every attempt, and as unique as before: no part of it is left out. ConfigurationError where the rule has
    no room for it.
    """
    number = int(key.replace("-", ""), 16)
    for form in (key, f"{number:032x}", _in_digits(number, 36, 25), _in_digits(number, 62, 22)):
        try:
            return check_key(form, rule)
        except InvalidKeyError:
            continue
    raise ConfigurationError(
        f"keys of {rule.min_length} to {rule.max_length} characters have no room for one that is nobody else's: it "
        "takes 22 to 36 letters and digits"
    )


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _in_digits(number: int, radix: int, width: int) -> str:
    """`number` to this base, in as many digits as the largest of 128 bits takes."""
    digits = []
    for _ in range(width):
        number, digit = divmod(number, radix)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def derived_key(name: str, *parts: str | int | UUID) -> str:
    """The key of an intent that has a name of its own: ("charge", cart_id), ("renewal", "sub_123", "2026-10").

    Equal names and parts give the same key on every machine and after every restart; 7 and "7" are equal parts, because
    an id that came by an address is text and the same id from a database is a number. Whatever is missing is refused:
    None, "" or 0 parts would give all intents without an id one key. InvalidKeyError.
    """
    given: tuple[object, ...] = (name, *parts)
    if not isinstance(given[0], str) or not name or not parts:
        raise InvalidKeyError("a derived key needs a name and at least one part that identifies the intent")
    pieces = [_as_bytes(name)]
    for part in given[1:]:
        if isinstance(part, bool) or not isinstance(part, (str, int, UUID)) or part == "":
            raise InvalidKeyError(
                f"a part of a derived key must be a non-empty string, a whole number or a UUID, "
                f"not {type(part).__name__}{' of length 0' if part == '' else ''}"
            )
        pieces.append(_as_bytes(part))
    joined = b"".join([b"%d:%b" % (len(piece), piece) for piece in pieces])
    return _as_uuid(blake2b(joined, digest_size=16, person=b"twicesafe-intent"))


def _as_bytes(part: str | int | UUID) -> bytes:
    try:
        return str(part).encode("utf-8")
    except ValueError:
        # Neither has a number of thousands of digits.
        raise InvalidKeyError("a derived key's name and parts must be text: half a surrogate pair is none") from None


def _as_uuid(digest: blake2b) -> str:
    raw = bytearray(digest.digest())
    raw[6] = raw[6] & 0x0F | 0x80  # version 8: an application's own derivation (RFC 9562, 5.8)
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
