"""What a reader of a report is not to learn: credentials, sessions, API keys, and more than a hint of idempotency keys.

A secret is known by its name (of a header, a parameter, a member, an element) or by its value: what the target's
description calls secret is taken out wherever it appears, in the encodings in which servers like to hand things back,
and so is what has been seen under a secret's name anywhere in the report.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from twicesafe.conformance.findings import Exchange, Lines
from twicesafe.conformance.reports.hiding import pattern_of

MASK: Final = "***"

TELLING: Final = 8
"""Characters from which on a value that was seen under a secret's name is taken out elsewhere too: shorter ones are
words and numbers, and a report without them cannot be read."""

READ: Final = 64 * 1024
"""Bytes of a body in which names are looked for. More than that is not shown either."""

LONGEST: Final = 8 * 1024
"""Characters of a secret, as written, behind which a body is not shown either."""

_SECRET: Final = re.compile(
    r"(?:^|-)(?:authorization|auth|cookie|cookies|secret|secrets|token|tokens|password|passwd|passphrase|pwd|credential|"
    r"credentials|signature|sig|session|sessionid|sid|jwt|bearer|apikey|api-?key|access-?key|private-?key|signing-?key|"
    r"account-?key|subscription-?key|otp|pin|csrf|xsrf|csrftoken|pan|cvc|cvv|card-?number)(?:-|$)"
)
_KEY: Final = re.compile(r"idempoten(?:cy|ce|t)(?:-?(?:key|token|id))?$|^repeatability-request-id$")
"""Not what speaks of a replay or a key's retention."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_AROUND: Final = " \t\r\n\"'"
_SCHEME: Final = re.compile(r"([A-Za-z][\w-]*) +(\S.*)", re.DOTALL)

# What is searched may be made to be slow to search: names and blanks are bounded, repetitions give nothing back.
_NAME: Final = r'"((?:[^"\\]|\\.){0,128}+)"(\s{0,32}+:\s{0,32}+)'
_MEMBER: Final = re.compile(_NAME + r'("(?:[^"\\]|\\.)*+(?:"|\\?\Z)|-?\d[\d.eE+-]*+|true|false|null)', re.DOTALL)
_NESTED: Final = re.compile(_NAME + r"(?=[\[{])", re.DOTALL)
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)
_ELEMENT: Final = re.compile(r"<((?:[\w-]{1,64}+:)?([\w.-]{1,128}+))((?:\s[^<>]{0,2048}+)?)>([^<]*+)")
_PARAMETER: Final = re.compile(r"(^|[&?;\s])([^=&?;\s]++)=([^&#;\s]*+)")
_PART: Final = re.compile(
    r'(\bname="([^"\r\n]{0,128}+)"[^\r\n]{0,256}+\r?\n(?:[^\r\n]{1,512}+\r?\n){0,8}+\r?\n)(.*?)(?=\r?\n--|\Z)',
    re.DOTALL,
)


def normal(name: str) -> str:
    """`apiKey`, `api_key` and `API-Key` are one name."""
    return _HUMP.sub("-", name).lower().replace("_", "-").replace(".", "-")


def names_secret(name: str) -> bool:
    """Whether what stands under this name is nobody else's business."""
    return _SECRET.search(normal(name)) is not None


def hint(key: str) -> str:
    """What a reader may see of an idempotency key: enough to tell two apart, and the quotes and blanks around it."""
    inner = key.strip(_AROUND)
    if not inner or inner.lower() in ("true", "false"):
        return key
    before, _, after = key.partition(inner)
    length = f" ({len(inner):,} characters)" if len(inner) > 64 else ""
    if len(inner) >= 16:
        return f"{before}{inner[:4]}…{inner[-4:]}{after}{length}"
    return f"{before}…{inner[-4:] if len(inner) >= 8 else ''}{after}"


class Masking:
    """The secrets of one report, and how they are taken out of it."""

    def __init__(
        self, secrets: Iterable[str] = (), carriers: Iterable[str] = (), evidence: Iterable[Exchange] = ()
    ) -> None:
        """`secrets` are what the target's description calls so, `carriers` the names under which keys stand.

        What stands under the names of secrets and keys in `evidence` is taken out wherever it appears, too.
        """
        self._secrets = frozenset(secrets)
        self._carriers = frozenset(normal(name) for name in carriers if name)
        told = {part for secret in self._secrets for part in parts(secret)}
        seen: set[str] = set()
        keys: set[str] = set()
        for name, value in _named(evidence):
            if self.names_key(name):
                keys.add(value.strip(_AROUND))
            elif names_secret(name):
                seen.update(parts(value, name))
        self._told = pattern_of(told, encoded=True)
        self._seen = pattern_of({text for text in seen if len(text) >= TELLING}, encoded=False)
        self._keys = pattern_of({text for text in keys if len(text) >= TELLING} - seen, encoded=False)
        self.longest = min(LONGEST, 6 * max(map(len, told | seen), default=0)) + 8
        """Characters that a secret takes at most, however it is written."""

    def learn(self, evidence: Iterable[Exchange]) -> Masking:
        """Another one, which has seen what stands under the names of secrets and keys in these exchanges."""
        return Masking(self._secrets, self._carriers, evidence)

    def names_key(self, name: str) -> bool:
        """Whether an idempotency key stands under this name."""
        found = normal(name)
        return found in self._carriers or _KEY.search(found) is not None

    def text(self, text: str) -> str:
        """Any text without the secrets and keys that are known by their values."""
        for secrets in (self._told, self._seen):
            text = text if secrets is None else secrets.sub(MASK, text)
        return text if self._keys is None else self._keys.sub(lambda found: hint(found.group()), text)

    def named(self, name: str, value: str) -> str:
        """A value that stands under a name."""
        if self.names_key(name):
            return self.text(hint(value))
        return MASK if names_secret(name) else self.text(value)

    def line(self, name: str, value: str) -> str:
        """The value of a header line. The scheme of a credential, and names and attributes of cookies, may be seen."""
        found = normal(name)
        if found == "set-cookie":
            cookie, semicolon, attributes = value.partition(";")
            return f"{_cookie(cookie)}{semicolon}{self.text(attributes)}"
        if found == "cookie":
            return "; ".join(_cookie(cookie) for cookie in value.split(";"))
        if found in ("authorization", "proxy-authorization"):
            scheme = _SCHEME.fullmatch(value.strip())
            return f"{scheme[1]} {MASK}" if scheme else MASK
        if found in ("location", "content-location", "link", "referer", "origin"):
            return self.url(value)
        return self.named(name, value)

    def url(self, url: str) -> str:
        """A URL without a password or the parameters that are secret."""
        without = re.sub(r"(?<=//)([^/?#@\s:]*):([^/?#@\s]*)@", rf"\1:{MASK}@", url)
        return self.text(_PARAMETER.sub(self._parameter, without))

    def body(self, text: str, content_type: str = "") -> str:
        """A body as text. What is no secret stays as it was sent, to the blank."""
        if "x-www-form-urlencoded" in content_type:
            return self.text(_PARAMETER.sub(self._parameter, text))
        if "multipart/" in content_type:
            text = _PART.sub(lambda part: part[1] + self.named(part[2], part[3]), text)
        text = _MEMBER.sub(self._member, _without_nested(text))
        if "<" in text:
            text = _ELEMENT.sub(self._element, text)
        return self.text(text)

    def _parameter(self, found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}={self.named(found[2], found[3]) if found[3] else ''}"

    def _member(self, found: re.Match[str]) -> str:
        name, value = _plain(found[1]), found[3]
        if not (self.names_key(name) or names_secret(name)) or value in ('""', "null", "true", "false"):
            return found[0]
        shown = json.dumps(self.named(name, _plain(value[1:].removesuffix('"'))), ensure_ascii=False)
        return f'"{found[1]}"{found[2]}{shown if value[0] == chr(34) else json.dumps(self.named(name, value))}'

    def _element(self, found: re.Match[str]) -> str:
        value = found[4] if not found[4].strip() else self.named(found[2], found[4])
        return f"<{found[1]}{found[3]}>{value}"


def parts(secret: str, name: str = "") -> Iterator[str]:
    """A secret, and what of it may appear alone: what follows `Bearer`, the password in `Basic`, values of cookies."""
    secret = secret.strip()
    if not secret:
        return
    if normal(name) == "set-cookie":
        secret = secret.partition(";")[0]
    if normal(name) in ("cookie", "set-cookie"):
        yield from (cookie.partition("=")[2].strip(' "') for cookie in secret.split(";") if "=" in cookie)
        return
    yield secret
    if scheme := _SCHEME.fullmatch(secret):
        yield scheme[2]
        if scheme[1].lower() == "basic":
            try:
                pair = base64.b64decode(scheme[2], validate=True).decode("utf-8")
            except (binascii.Error, UnicodeDecodeError):
                return
            yield from filter(None, (pair, pair.partition(":")[2]))
    elif not name and (cookies := re.fullmatch(r"[^\s=;,]+=[^;]+(?:;\s*[^\s=;,]+=[^;]*)*", secret)):
        yield from (cookie.partition("=")[2].strip(' "') for cookie in cookies[0].split(";"))


def _cookie(text: str) -> str:
    name, equals, _ = text.strip().partition("=")
    return f"{name}={MASK}" if equals else MASK


def _plain(text: str) -> str:
    """The inside of a JSON string without its escapes; as it is where they are none."""
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _without_nested(text: str) -> str:
    """JSON in which an object or an array stands under a secret's name, without what is in there."""
    kept, at = [], 0
    for found in _NESTED.finditer(text):
        if found.start() >= at and names_secret(_plain(found[1])):
            kept += [text[at : found.end()], f'"{MASK}"']
            try:
                at = _DECODER.raw_decode(text, found.end())[1]
            except (ValueError, RecursionError):
                at = len(text)
    return "".join(kept) + text[at:]


def _named(evidence: Iterable[Exchange]) -> Iterator[tuple[str, str]]:
    """Every name and value in some exchanges."""
    for exchange in evidence:
        yield from _parameters(exchange.request.url.partition("?")[2])
        for message in (exchange.request, exchange.answer):
            if message is not None:
                yield from message.lines
                yield from _in_body(message.lines, message.body)


def _in_body(lines: Lines, body: bytes) -> Iterator[tuple[str, str]]:
    text = body[:READ].decode("utf-8", "replace")
    if any(name.lower() == "content-type" and "x-www-form-urlencoded" in value for name, value in lines):
        yield from _parameters(text)
    for name, _, value in _MEMBER.findall(text):
        yield _plain(name), _plain(value[1:].removesuffix('"')) if value[0] == '"' else value


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    return ((name, value) for _, name, value in _PARAMETER.findall(text))
