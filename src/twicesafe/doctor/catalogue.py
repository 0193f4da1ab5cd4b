"""Everything that can be found: what it means, and what to set."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """An intent can happen twice, or somebody can see what is another's, or nothing works."""
    WARNING = "warning"
    """It works until something else goes wrong."""


class Kind(NamedTuple):
    """One kind of finding."""

    severity: Severity
    title: str
    means: str
    do: str


class Finding(NamedTuple):
    """One thing that is wrong, and where."""

    code: str
    where: str
    """The layer, operation, route or store."""
    detail: str = ""
    """What was seen. It repeats no secret and nothing of any record."""

    @property
    def kind(self) -> Kind:
        """What is known of all of this kind."""
        return CATALOGUE[self.code]

    def as_dict(self) -> dict[str, str]:
        """As JSON has it."""
        kind = self.kind
        return {
            "code": self.code,
            "severity": kind.severity.value,
            "where": self.where,
            "title": kind.title,
            "detail": self.detail,
            "means": kind.means,
            "do": kind.do,
        }


_E, _W = Severity.ERROR, Severity.WARNING

CATALOGUE: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        # --- whether there is anything
        "nothing-protected": Kind(
            _E,
            "No part of twicesafe stands in this application",
            "Every retry runs again.",
            "Put twicesafe's middleware, or an Idempotency with its operations, into the application that is served.",
        ),
        "settings-wrong": Kind(
            _E,
            "The settings are refused",
            "The application does not start, or answers 500 to every request under a key.",
            "Set what the message names.",
        ),
        "route-unprotected": Kind(
            _W,
            "A route takes requests that change something, and has no contract",
            "A retry of such a request runs again. That is right where the operation is idempotent by itself.",
            "Put `@safe.operation()` under the route's decorator, or leave it, having thought about it.",
        ),
        # --- who the caller is
        "scope-public": Kind(
            _E,
            "The scope is PUBLIC, and the application knows its callers",
            "All callers share their keys: whoever sends a key that another has used gets the other's answer.",
            "Pass a scope that gives the id of the caller as authentication has found it out.",
        ),
        "scope-from-header": Kind(
            _E,
            "The scope is what a header says that any client can send",
            "A client that names somebody else gets that caller's answers.",
            "Take the id from what the server has authenticated. Behind a proxy that sets the header and removes what "
            "clients send, have an authentication layer of the application read it.",
        ),
        # --- in which order the layers stand
        "authentication-inside": Kind(
            _E,
            "Authentication stands inside of twicesafe",
            "A replay is sent before anybody asks who wants it, and the scope cannot know the caller.",
            "Move authentication outside, around twicesafe's middleware.",
        ),
        "session-inside": Kind(
            _E,
            "Sessions stand inside of twicesafe",
            "What a session sets for one request is recorded, or lost on a replay, and the scope does not see it.",
            "Move the session layer outside, around twicesafe's middleware.",
        ),
        "cors-inside": Kind(
            _W,
            "CORS stands inside of twicesafe",
            "The lines for the first caller's origin are recorded and sent to the next one's; refusals have none, so "
            "that a browser shows its page no more than a network error.",
            "Move CORS outside, around twicesafe's middleware.",
        ),
        "compression-inside": Kind(
            _W,
            "Compression stands inside of twicesafe",
            "The first caller's coding is recorded, and replayed to callers who cannot read it.",
            "Move compression outside, around twicesafe's middleware; SealedStore compresses what is stored.",
        ),
        "body-consumed": Kind(
            _E,
            "A layer outside of twicesafe takes the request's body and does not pass it on",
            "Fingerprints are those of another body, so that a changed request counts as the same one; or none comes.",
            "Have the layer hand on what it has read, or move it inside.",
        ),
        "retries-inside": Kind(
            _E,
            "The handler is called again by something inside of twicesafe",
            "An attempt that failed after its effect does it twice, under one key.",
            "Retry the single calls to other systems, under derived keys, or leave it to the caller.",
        ),
        # --- settings of operations
        "retention-short": Kind(
            _E,
            "Keys are forgotten sooner than clients stop asking",
            "A retry that comes later is a new request, and runs.",
            "Make key_retention longer than the longest path of a retry: deadlines, queues, a broker's redelivery, a "
            "vendor's schedule, a weekend.",
        ),
        "lease-short": Kind(
            _W,
            "A lease is shorter than what the work may take",
            "A pause of the process looks like its death: another attempt takes over, or the outcome counts as "
            "unknown.",
            "Leave the lease at 30 s, and make renewed_for longer than the longest request.",
        ),
        # --- the store
        "store-unreachable": Kind(
            _E,
            "The store cannot be reached from here",
            "Requests under a key are answered 503, and nothing runs.",
            "Look at the address, the network and the account. What could only be seen there was not looked at.",
        ),
        "schema-wrong": Kind(
            _E,
            "The store's tables are missing, or of another version",
            "The application does not start, or answers 500 to every request under a key.",
            "Run the command that the message names.",
        ),
        "memory-store": Kind(
            _E,
            "Records are kept in the memory of one process",
            "Another worker knows nothing of them, nor does this one after a restart: a retry runs again there.",
            "Keep records in SQLite, PostgreSQL, MySQL, Redis or DynamoDB. Memory is for tests.",
        ),
        "no-transaction": Kind(
            _E,
            "An operation is transactional, and its store begins no transaction",
            "With AUTOCOMMIT, the effect would be there without its record. Requests are answered 500.",
            "Take AUTOCOMMIT off what the store is given.",
        ),
        "isolation-strict": Kind(
            _W,
            "Transactions are stricter than they need to be",
            "Handlers that meet are refused at their end with 503, and each claim takes one or two round trips more.",
            "Leave READ COMMITTED, unless the handlers themselves need more.",
        ),
        "pool-small": Kind(
            _W,
            "The pool has fewer connections than requests run at once",
            "A transactional request holds a connection from its claim to its answer. Whoever comes later waits, "
            "and is told 503; a handler that takes a second connection from the pool can wait for itself for ever.",
            "Make the pool as large as what runs at once, and one larger.",
        ),
        "clock-skew": Kind(
            _W,
            "The store's clock and this machine's differ",
            "Leases and retention go by the store's clock, so they are right. What compares them with this machine's "
            "is not: logs, Date lines, first_sent, alarms.",
            "Let both follow one time server.",
        ),
        "redis-evicts": Kind(
            _E,
            "Redis throws records away when its memory is full",
            "A key that was thrown away is a new key: its retry runs again.",
            "Set maxmemory-policy noeviction.",
        ),
        "redis-forgets": Kind(
            _E,
            "Redis keeps nothing on its disk, or less than it says",
            "After a restart every key is a new one: retries run again.",
            "Set appendonly yes and appendfsync always, or name a durable store by records=.",
        ),
        "sqlite-network": Kind(
            _E,
            "The SQLite file lies on a file system of a network",
            "Locks and WAL do not work there: two processes may claim one key, or damage the file.",
            "Keep it on a disk of this machine, or take PostgreSQL.",
        ),
        "seal-key-missing": Kind(
            _E,
            "Stored answers are encrypted with a key that is not there",
            "Their retries are answered 503 until the key is back.",
            "Give the store the key as well. A key that was thrown away on purpose belongs in `discarded`.",
        ),
        # --- what should be running
        "unsettled-old": Kind(
            _W,
            "Operations have been left behind, and nobody goes on with them",
            "An operation that broke off, or whose outcome is unknown, stays as it is.",
            "Run `twicesafe worker` with the application's Once and Reconcilers; look at `twicesafe keys list`.",
        ),
        "messages-old": Kind(
            _W,
            "Messages wait in the outbox, and nobody delivers them",
            "Their receivers know nothing of what happened.",
            "Run `twicesafe worker` with a Relay; look at `twicesafe outbox list`.",
        ),
        "expired-kept": Kind(
            _W,
            "What has expired is still there",
            "Nothing depends on it but space: the table grows for ever.",
            "Run `twicesafe reap`, or a Reaper.",
        ),
    }
)
