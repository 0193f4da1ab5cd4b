"""A target: how to make one keyed request of it, and whatever else it told about itself.

Everything but the request may be missing. What is, some trials are less sure or say nothing at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final
from urllib.parse import urlsplit

from twicesafe.conformance.effects import Counter
from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.findings import Lines, Request
from twicesafe.conformance.templates import KEY, Intent, fill, names_unique

CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key", "api-key", "apikey"})
"""Header names whose values are nobody else's business."""

USUAL_HEADER: Final = "Idempotency-Key"
CARRIERS: Final = (
    USUAL_HEADER, "X-Idempotency-Key", "Request-Idempotency-Key", "PayPal-Request-Id", "Repeatability-Request-ID",
    "Cko-Idempotency-Key", "X-GCS-Idempotence-Key", "X-Qonto-Idempotency-Key", "X-Payout-Idempotency",
    "chargebee-idempotency-key", "x-amz-pay-idempotency-key", "Idempotence-Key",
)  # fmt: skip
"""Headers that bear keys."""


@dataclass(frozen=True, slots=True)
class Template:
    """A request with places to fill in."""

    method: str
    url: str
    lines: Lines = ()
    body: str | None = None
    """None for a request without a body."""
    before: Template | None = None
    """A request that prepares this one, sent once per intent: it arms a fault, say."""
    reached: Template | None = None
    """A request that is answered 2xx as soon as this one is at work; until then it may wait, or be refused."""
    after: Template | None = None
    """A request that lets go of this one while it is running."""

    @property
    def beside(self) -> list[Template]:
        """What is sent before it, and while it is running."""
        return [one for one in (self.before, self.reached, self.after) if one is not None]

    def fill(self, intent: Intent) -> Request:
        """The request of an intent. Header lines whose value ends up empty for want of a key are left out."""
        lines = [(name, fill(value, intent)) for name, value in self.lines]
        body = b"" if self.body is None else fill(self.body, intent).encode()
        return Request(self.method, fill(self.url, intent), tuple(lines), body)

    def texts(self) -> list[str]:
        """Everything in which a place may stand."""
        return [self.url, *(value for _, value in self.lines), self.body or ""]

    @property
    def names_key(self) -> bool:
        """Whether it says itself where the key goes."""
        return any(KEY.search(text) for text in self.texts())

    @property
    def names_unique(self) -> bool:
        """Whether anything in it differs from one intent to the next, the key apart."""
        return names_unique(self.texts())

    def at(self, origin: str, server: str) -> Template:
        """The same on another server, where it is on this one."""
        url = server + self.url.removeprefix(origin) if self.url.startswith(origin + "/") else self.url
        before, reached, after = (one and one.at(origin, server) for one in (self.before, self.reached, self.after))
        return replace(self, url=url, before=before, reached=reached, after=after)

    def with_lines(self, lines: Lines) -> Template:
        """The same with these lines in place of those of their names."""
        return replace(self, lines=replaced(self.lines, lines))


@dataclass(frozen=True, slots=True)
class Target:
    """What is checked."""

    request: Template
    """With `{{key}}` where the key goes: in a header, or in the body."""
    name: str = ""
    profile: str = "ietf"
    key: str = "{{uuid}}"
    """How a key is made."""
    required: bool | None = None
    """Whether a request without a key is to be refused; None where nothing is promised."""
    counter: Counter | None = None
    changed: Template | None = None
    """Another valid request for the same key: its body says something else."""
    rejected: Template | None = None
    """A request that is answered 4xx by the application; what it is corrected to is `corrected`."""
    corrected: Template | None = None
    """Where None, `request`."""
    slow: Template | None = None
    """One that takes long. Where None, `request` is tried."""
    failing: Template | None = None
    """One that is answered 5xx the first time."""
    throttled: Template | None = None
    """One that is answered 429 the first time."""
    crashing: Template | None = None
    """One in the course of which the server dies and comes back by itself."""
    other_caller: Lines | None = None
    """Header lines of somebody else, in place of those of the same names."""
    unauthorized: Lines | None = None
    """Header lines that are answered 401 or 403."""
    crash: str | None = None
    """A command that kills the server at once, as `kill -9` does."""
    restart: str | None = None
    """A command that starts it again. Given alone, it has to do both."""
    expire_seconds: float | None = None
    """After how long a key is forgotten."""
    expire_command: str | None = None
    """A command after which every key is forgotten: it moves the clock, or calls the reaper."""
    expire_request: Template | None = None
    """A request after which it is."""
    secret_headers: frozenset[str] = field(default=CREDENTIALS)
    """Whose values are masked in a report; lower case."""

    def __post_init__(self) -> None:
        if not self.request.names_key:
            raise CannotCheckError("the request says nowhere where the key goes: write {{key}} in a header or the body")

    @property
    def templates(self) -> list[Template]:
        """All requests that it knows, what is sent beside them included."""
        found = [value for field in fields(self) if isinstance(value := getattr(self, field.name), Template)]
        return [*found, *(beside for one in found for beside in one.beside)]

    def at(self, server: str) -> Target:
        """The same target on another server: every URL that begins like the request's own begins with `server`."""
        parts = urlsplit(self.request.url)
        origin, server = f"{parts.scheme}://{parts.netloc}", server.rstrip("/")
        moved: dict[str, Any] = {
            field.name: value.at(origin, server)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Template)
        }
        counter = self.counter and self.counter.at(origin, server)
        return replace(self, counter=counter, **moved)

    @property
    def title(self) -> str:
        """What to call it."""
        return self.name or f"{self.request.method} {self.request.url}"

    @property
    def header(self) -> str:
        """The header that carries the key; empty where the body does."""
        return next((name for name, value in self.request.lines if KEY.search(value)), "")

    @property
    def carrier(self) -> str:
        """The header or the JSON member that carries the key; empty where it is something else."""
        if self.header or self.request.body is None:
            return self.header
        try:
            members = json.loads(self.request.body)
        except ValueError:
            return ""
        found = members.items() if isinstance(members, dict) else ()
        return next((name for name, value in found if isinstance(value, str) and KEY.search(value)), "")


def keyed(template: Template, header: str = USUAL_HEADER) -> Template:
    """The template with a place for the key: as it is where it has one, else with a header line of its own."""
    if template.names_key:
        return template
    return template.with_lines(((header, "{{key}}"),))


def replaced(lines: Lines, by: Lines) -> Lines:
    """The lines with those of the names in `by` replaced; an empty value takes a line away."""
    names = {name.lower() for name, _ in by}
    return tuple(line for line in lines if line[0].lower() not in names) + tuple(line for line in by if line[1])
