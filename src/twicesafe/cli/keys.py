"""`twicesafe keys`: what became of a key, for the people who run it, and what they do about it."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, Final

from twicesafe.cli.existing import check_there
from twicesafe.cli.people import (
    AS_JSON,
    STORE,
    WHO,
    WHY,
    as_text,
    audit_of,
    audit_out,
    line_out,
    name_of,
    table_out,
    time_of,
)
from twicesafe.cli.terminal import DAMAGE, typer
from twicesafe.core.journal import Journal
from twicesafe.core.keys import PUBLIC, scoped_key
from twicesafe.core.lifecycle import standing
from twicesafe.core.record import Instant, Record, RecordState, StoredResponse
from twicesafe.core.settling import Reopen, Settle, may_end, open_call, reopen, steps_of, told
from twicesafe.core.settling import settle as settlement
from twicesafe.core.values import AnyValues
from twicesafe.errors import ConfigurationError, DefinitionChangedError, ValueNotKeptError
from twicesafe.stores.contract import AuditEntry
from twicesafe.stores.urls import open_store

keys = typer.Typer(
    help="See what became of keys, and settle what nobody else can.",
    epilog="""
\b
Examples:
  twicesafe keys list --store postgresql://app@host/shop                unknown outcomes, and what broke off
  twicesafe keys show --store ... --scope user-7 8e03978e-40d5-43e8-bc93-6894a57f9324
  twicesafe keys show --store ... 5f3c...                               by the digest that list prints
  twicesafe keys settle --store ... 5f3c... --why "charged, ch_1" --status 201 --body receipt.json
  twicesafe keys release --store ... 5f3c... --why "provider never saw it"
  twicesafe keys resume --store ... 5f3c... --why "deployed 1.2.3"      an operation that was held goes on

\b
Exit status:
  0  done
  1  the record is not, or no longer, what this would change; nothing was changed
  2  it could not be done: a wrong option, no such key, a store out of reach
""",
    no_args_is_help=True,
)

TARGET = Annotated[
    str, typer.Argument(metavar="KEY", help="The key, with --scope; or its digest, whole or its first letters.")
]
SCOPE = Annotated[str, typer.Option(help="Whose key it is, as the application names its callers.")]
EVERYBODY = Annotated[bool, typer.Option("--public", help="The key of an operation that anybody may call.")]
OPERATION = Annotated[str, typer.Option(help="The operation's name, where keys are per operation.")]

_HEADER: Final = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)\s*")
FEWEST: Final = 6
"""Letters of a digest that are enough to look for it among what is outstanding."""


@keys.command("list", short_help="Unknown outcomes, and operations that broke off.")
def list_(
    store: STORE,
    operation: Annotated[str, typer.Option(help="Only those of this operation.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    as_json: AS_JSON = False,
) -> None:
    """List what waits for somebody: unknown outcomes, and operations of several steps that broke off.

    It looks through the whole table, a few thousand records at a time, and blocks nobody. Other work whose process died
    is found by `twicesafe reap`, or by a retry, and is listed from then on.
    """
    with closing(_opened(store)) as records:
        found = []
        for record, now in _outstanding(records):
            if not operation or record.operation == operation:
                found.append(_shown(record, now))
            if len(found) >= limit:
                break
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    if not found:
        sys.stdout.write("Nothing is outstanding.\n")
        return
    columns = ("operation", "scope", "key", "standing", "created", "step")
    rows = ([one["digest"][:12], *(one[name] for name in columns)] for one in found)
    table_out(("digest", *columns), rows)


@keys.command(short_help="One record, its steps, and what people did about it.")
def show(
    store: STORE,
    target: TARGET,
    scope: SCOPE = "",
    public: EVERYBODY = False,
    operation: OPERATION = "",
    as_json: AS_JSON = False,
) -> None:
    """Show a record. Never a body: it may hold what you are not to see."""
    with closing(_opened(store)) as records:
        digest = _digest(records, target, scope, operation, public=public)
        found = records.read(digest)
        trail = records.audits(digest)
    if found.record is None and not trail:
        raise ConfigurationError("nothing is known of this key: it was never used, or is forgotten")
    shown = {} if found.record is None else _shown(found.record, found.now)
    if found.record is not None:
        with suppress(DefinitionChangedError):
            shown["steps"] = [entry._asdict() | {"result": "..."} for entry in _journal(found.record).entries]
    shown["audit"] = audit_of(trail)
    if as_json:
        sys.stdout.write(json.dumps(shown) + "\n")
        return
    for name, value in shown.items():
        if not isinstance(value, list):
            line_out(name, value)
    for step in shown.get("steps", ()):
        line_out("step", f"{step['kind']} {step['name']}: {step['standing']}")
    audit_out(shown["audit"])


@keys.command(short_help="Say that it was done, and what its answer is.")
def settle(
    store: STORE,
    target: TARGET,
    why: WHY,
    scope: SCOPE = "",
    public: EVERYBODY = False,
    operation: OPERATION = "",
    who: WHO = "",
    status: Annotated[int, typer.Option(min=200, max=599, help="The answer's status.")] = 200,
    header: Annotated[list[str] | None, typer.Option(help="A header line, 'name: value'. May be repeated.")] = None,
    body: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The answer's body, a function's result as JSON: a file, or - for standard input.",
        ),
    ] = None,
    as_json: AS_JSON = False,
) -> None:
    """Settle an unknown outcome as done: every retry gets this answer.

    Where an operation of several steps has an open call, say first what became of that: `resume --done`.
    """
    lines = tuple(_line(text) for text in header or ())
    content = b"" if body is None else _content(body)
    if body is not None and not any(name == b"content-length" for name, _ in lines):
        lines = (*lines, (b"content-length", b"%d" % len(content)))
    response = StoredResponse(status, lines, content)
    action = f"settle as done with {status}"
    _decide(store, target, scope, operation, action, who, why, response, public=public, as_json=as_json)


@keys.command(short_help="Say that it was not done: the key is free.")
def release(
    store: STORE,
    target: TARGET,
    why: WHY,
    scope: SCOPE = "",
    public: EVERYBODY = False,
    operation: OPERATION = "",
    who: WHO = "",
    as_json: AS_JSON = False,
) -> None:
    """Settle an unknown outcome as not done: the next attempt runs.

    An operation of several steps may have taken some of them, and would take them again: `resume` goes on behind them.
    """
    action = "release as not done"
    _decide(store, target, scope, operation, action, who, why, None, public=public, as_json=as_json)


@keys.command(short_help="Let an operation that was held go on.")
def resume(
    store: STORE,
    target: TARGET,
    why: WHY,
    scope: SCOPE = "",
    public: EVERYBODY = False,
    operation: OPERATION = "",
    who: WHO = "",
    done: Annotated[
        str | None, typer.Option(help="Its open call was carried out, with this result, as JSON: '\"ch_1\"'.")
    ] = None,
    not_done: Annotated[bool, typer.Option("--not-done", help="Its open call was not carried out.")] = False,
    as_json: AS_JSON = False,
) -> None:
    """Let an operation of several steps go on that is held as unknown: by its worker, or by the next attempt.

    Where it is held for a call whose outcome nobody knew, say what you found out.
    """
    if done is not None and not_done:
        raise ConfigurationError("say --done RESULT or --not-done, not both")
    with closing(_opened(store)) as records:
        record = _unknown(records, _digest(records, target, scope, operation, public=public))
        journal = steps_of(record)
        if journal is None:
            raise ConfigurationError(f"{record.operation} has no steps: use settle or release")
        action = "resume"
        if done is not None or not_done:
            call = open_call(journal)
            if call is None:
                raise ConfigurationError(f"{record.operation} has no open call: leave out --done and --not-done")
            journal = told(journal, None if done is None else _json(done))
            action = f"resume, {call.name} was {'not ' * not_done}done"
        _carry_out(records, record, reopen(record, journal), action, who, why, as_json=as_json)


def _decide(
    store: str,
    target: str,
    scope: str,
    operation: str,
    action: str,
    who: str,
    why: str,
    response: StoredResponse | None,
    *,
    public: bool,
    as_json: bool,
) -> None:
    with closing(_opened(store)) as records:
        record = _unknown(records, _digest(records, target, scope, operation, public=public))
        if not may_end(steps_of(record), done=response is not None):
            raise ConfigurationError(
                f"{record.operation} has taken steps already: `twicesafe keys resume` says what became of its open call"
            )
        _carry_out(records, record, settlement(record, response), action, who, why, as_json=as_json)


def _carry_out(
    records: Any, record: Record, decision: Settle | Reopen, action: str, who: str, why: str, *, as_json: bool
) -> None:
    """Who does what, and why, is in the trail before it is done: also where this process dies in between."""
    entry = AuditEntry.of(record, action, name_of(who), as_text(why), os.urandom(16))
    records.audit(entry)
    made = records.settle(*decision) if isinstance(decision, Settle) else records.reopen(*decision)
    records.audited(entry, "done" if made else "refused")
    if as_json:
        sys.stdout.write(json.dumps({"digest": record.digest.hex(), "action": action, "done": made}) + "\n")
    elif made:
        sys.stdout.write(f"Done: {action}.\n")
    if not made:
        sys.stderr.write("Nothing was changed: somebody else was quicker. Look at it again.\n")
        raise typer.Exit(DAMAGE)


def _opened(url: str) -> Any:
    check_there(url)
    records = open_store(url)
    try:
        if not hasattr(records, "outstanding") or not hasattr(records, "audits"):
            raise ConfigurationError(
                f"{type(records).__name__} cannot list records: this is for SQLite, PostgreSQL and MySQL"
            )
        records.check_schema()
    except BaseException:
        records.close()
        raise
    return records


def _outstanding(records: Any) -> Any:
    after = None
    while True:
        found = records.outstanding(after)
        for record in found.records:
            yield record, found.now
        after = found.after
        if after is None:
            return


def _digest(records: Any, target: str, scope: str, operation: str, *, public: bool) -> bytes:
    """Which record is meant."""
    if scope and public:
        raise ConfigurationError("say --scope or --public, not both")
    if scope or public:
        return scoped_key(scope or PUBLIC, target, operation or None).digest
    letters = target.lower()
    if not (FEWEST <= len(letters) <= 64 and set(letters) <= set("0123456789abcdef")):
        raise ConfigurationError(
            "name the key with --scope (or --public), or the digest that `twicesafe keys list` prints, "
            f"{FEWEST} letters of it at least"
        )
    if len(letters) == 64:
        return bytes.fromhex(letters)
    found = {record.digest for record, _ in _outstanding(records) if record.digest.hex().startswith(letters)}
    if len(found) != 1:
        raise ConfigurationError(
            f"{len(found) or 'no'} outstanding records begin with {letters}: name the whole digest, or the key"
        )
    digest: bytes = found.pop()
    return digest


def _unknown(records: Any, digest: bytes) -> Record:
    record: Record | None = records.read(digest).record
    if record is None:
        raise ConfigurationError("nothing is known of this key: it was never used, or is forgotten")
    if record.state is not RecordState.UNKNOWN:
        raise ConfigurationError(f"its outcome is not unknown, it is {record.state}: there is nothing to settle")
    return record


def _shown(record: Record, now: Instant) -> dict[str, Any]:
    try:
        last = [f"{one.kind} {one.name}: {one.standing}" for one in _journal(record).entries[-1:]]
    except DefinitionChangedError as error:
        # It stands beside others, which are to be seen.
        last = [str(error)]
    return {
        "digest": record.digest.hex(),
        "operation": record.operation,
        "scope": record.scope,
        "key": record.key_hint,
        "standing": str(standing(record, now)),
        "effects": str(record.effects),
        "attempts": record.epoch,
        "status": "" if record.response is None else record.response.status,
        "step": last[0] if last else "",
        "created": time_of(record.created_at),
        "lease_until": time_of(record.lease_until),
        "key_until": time_of(record.key_until),
    }


def _journal(record: Record) -> Journal:
    return Journal.read(record.recovery_data, record.recovery_point)


def _line(text: str) -> tuple[bytes, bytes]:
    found = _HEADER.fullmatch(text)
    if found is None:
        # Not what was given, which may be any answer's line.
        raise ConfigurationError("--header must be 'name: value'")
    return found[1].lower().encode("ascii"), found[2].encode("latin-1")


def _content(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"--body {file}: {error.strerror or error}") from None


def _json(text: str) -> str:
    try:
        kept = json.dumps(json.loads(text), separators=(",", ":"))
        AnyValues().check(kept.encode("ascii"))
        return kept
    except (ValueError, RecursionError, ValueNotKeptError):
        raise ConfigurationError(f"--done must be JSON, such as '\"ch_1\"', not {text!r}") from None
