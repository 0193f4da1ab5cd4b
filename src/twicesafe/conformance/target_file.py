"""A target described in TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from twicesafe.conformance.effects import CommandCounter, Counter, HttpCounter, SqlCounter
from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.findings import Lines
from twicesafe.conformance.target import CREDENTIALS, USUAL_HEADER, Target, Template, keyed

Table = Mapping[str, Any]

_REQUEST: Final = {"method", "url", "headers", "body", "json", "before", "reached", "after"}
_TABLES: Final = {
    "name", "profile", "request", "key", "effects", "changed", "rejected", "corrected", "slow", "failing", "throttled",
    "crashing", "other_caller", "unauthorized", "server", "expire", "secret_headers",
}  # fmt: skip


def from_file(path: Path) -> Target:
    """The target that a TOML file describes. CannotCheckError where it does not."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotCheckError(f"{path} cannot be read: {error}") from error
    return from_toml(text, str(path))


def from_toml(text: str, where: str = "the target") -> Target:
    """The target that a TOML document describes."""
    try:
        table = tomllib.loads(text)
        return _target(table)
    except tomllib.TOMLDecodeError as error:
        raise CannotCheckError(f"{where} is no TOML: {error}") from error
    except CannotCheckError as error:
        raise CannotCheckError(f"{where}: {error}") from None


def _target(table: Table) -> Target:
    _only(table, _TABLES, "")
    key = _table(table, "key")
    _only(key, {"header", "template", "required"}, "key.")
    plain = _template(_table(table, "request"), None, "request.")
    request = keyed(plain, _text(key, "header", "key.") or USUAL_HEADER)

    def variant(name: str) -> Template | None:
        return _template(_table(table, name), request, f"{name}.") if name in table else None

    def caller(name: str) -> Lines | None:
        _only(_table(table, name), {"headers"}, f"{name}.")
        return _lines(_table(table, name).get("headers", {}), f"{name}.headers") if name in table else None

    server, expire = _table(table, "server"), _table(table, "expire")
    _only(server, {"crash", "restart"}, "server.")
    _only(expire, {"seconds", "command", "request"}, "expire.")
    seconds = expire.get("seconds")
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (number and 0 <= seconds < float("inf")):
        raise CannotCheckError("expire.seconds has to be a number")
    required = key.get("required")
    if required is not None and not isinstance(required, bool):
        raise CannotCheckError("key.required has to be true or false")
    return Target(
        request=request,
        name=_text(table, "name") or "",
        profile=_text(table, "profile") or "ietf",
        key=_text(key, "template", "key.") or "{{uuid}}",
        required=required,
        counter=_counter(_table(table, "effects"), request) if "effects" in table else None,
        changed=variant("changed"),
        rejected=variant("rejected"),
        corrected=variant("corrected"),
        slow=variant("slow"),
        failing=variant("failing"),
        throttled=variant("throttled"),
        crashing=variant("crashing"),
        other_caller=caller("other_caller"),
        unauthorized=caller("unauthorized"),
        crash=_text(server, "crash", "server."),
        restart=_text(server, "restart", "server."),
        expire_seconds=seconds,
        expire_command=_text(expire, "command", "expire."),
        expire_request=_template(_table(expire, "request"), None, "expire.request.") if "request" in expire else None,
        secret_headers=CREDENTIALS | _names(table, "secret_headers"),
    )


def _template(table: Table, origin: Template | None, where: str) -> Template:
    """A request; with an origin, what the table does not say is as it is there."""
    _only(table, _REQUEST, where)
    url = _text(table, "url", where) or (origin.url if origin else None)
    if url is None:
        raise CannotCheckError(f"{where}url is missing")
    lines, body = _lines(table.get("headers", {}), f"{where}headers"), _text(table, "body", where)
    if "json" in table:
        if body is not None:
            raise CannotCheckError(f"{where}body and {where}json are two bodies")
        try:
            body = json.dumps(table["json"], ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            raise CannotCheckError(f"{where}json has what JSON cannot say: write a date as a text") from None
        if origin is None and not any(name.lower() == "content-type" for name, _ in lines):
            lines = (("Content-Type", "application/json"), *lines)
    if origin is None:
        made = Template(_text(table, "method", where) or "POST", url, lines, body)
    else:
        made = replace(origin.with_lines(lines), method=_text(table, "method", where) or origin.method, url=url)
        made = made if body is None else replace(made, body=body)
    before, reached, after = (
        _template(_table(table, name), None, f"{where}{name}.") if name in table else None
        for name in ("before", "reached", "after")
    )
    return replace(made, before=before, reached=reached, after=after)


def _counter(table: Table, request: Template) -> Counter:
    ways = {"url", "database", "command"} & table.keys()
    if len(ways) != 1:
        raise CannotCheckError("effects are counted by one of effects.url, effects.database or effects.command")
    if "url" in table:
        _only(table, {"url", "headers", "pointer", "occurrences"}, "effects.")
        return HttpCounter(
            _needed(table, "url"),
            tuple(line for line in request.lines if line[0].lower() in CREDENTIALS)
            if "headers" not in table
            else _lines(table["headers"], "effects.headers"),
            _text(table, "pointer", "effects.") or "",
            _text(table, "occurrences", "effects.") or "",
        )
    if "database" in table:
        _only(table, {"database", "sql"}, "effects.")
        return SqlCounter(_needed(table, "database"), _needed(table, "sql"))
    _only(table, {"command"}, "effects.")
    return CommandCounter(_needed(table, "command"))


def _needed(table: Table, name: str) -> str:
    found = _text(table, name, "effects.")
    if not found:
        raise CannotCheckError(f"effects.{name} is missing")
    return found


def _only(table: Table, known: set[str], where: str) -> None:
    if unknown := sorted(table.keys() - known):
        raise CannotCheckError(f"nothing is known of {where}{unknown[0]}; there are {', '.join(sorted(known))}")


def _table(table: Table, name: str) -> Table:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise CannotCheckError(f"{name} has to be a table")
    return found


def _names(table: Table, name: str) -> frozenset[str]:
    """In lower case. A text would be taken for its letters, and nothing of that name would be masked."""
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise CannotCheckError(f"{name} has to be a list of texts")
    return frozenset(one.lower() for one in found)


def _text(table: Table, name: str, where: str = "") -> str | None:
    found = table.get(name)
    if found is not None and not isinstance(found, str):
        raise CannotCheckError(f"{where}{name} has to be a text")
    return found


def _lines(table: Any, where: str) -> Lines:
    """`{ Name = "value", Other = ["one line", "another"] }`."""
    if not isinstance(table, dict):
        raise CannotCheckError(f"{where} has to be a table")
    lines = [
        (name, value) for name, found in table.items() for value in (found if isinstance(found, list) else [found])
    ]
    if wrong := [name for name, value in lines if not isinstance(value, str)]:
        raise CannotCheckError(f"{where}.{wrong[0]} has to be a text, or a list of texts")
    return tuple(lines)
