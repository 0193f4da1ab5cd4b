"""What an OpenAPI document says of an operation under keys (R4, R20, R21). Dictionaries, no framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from twicesafe.core.carriers import FormField, JsonMember, QueryParameter
from twicesafe.core.keys import KeyRule, KeySyntax
from twicesafe.core.policy import Policy
from twicesafe.core.problems import PROBLEM_JSON, PROBLEMS, REPLAYED, RETRY_AFTER

CONTRACT: Final = "x-idempotency"
"""On every operation under keys: its contract, for machines."""

_PLACES: Final[Mapping[type, str]] = {JsonMember: "json", FormField: "form", QueryParameter: "query"}
_IN_BODY: Final = "{} may carry the idempotency key."
_MEDIA_TYPE: Final = PROBLEM_JSON.decode()
_COMPONENT: Final = "IdempotencyProblem"
_PROBLEM: Final = {"$ref": f"#/components/schemas/{_COMPONENT}"}
_PROBLEM_SCHEMA: Final[Mapping[str, Any]] = {
    "title": "Idempotency problem",
    "description": "A problem document (RFC 9457) about the idempotency key of a request.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "retryable", "safe_new_key"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "retryable": {
            "type": "boolean",
            "description": "Whether the same request under the same key may be answered otherwise later.",
        },
        "safe_new_key": {
            "type": "boolean",
            "description": "Whether the request may be sent under a new key. If not, that could do it twice.",
        },
    },
}
_RETRY_AFTER: Final = {"description": "Seconds to wait before asking again.", "schema": {"type": "integer"}}
_REPLAYED: Final = {
    "description": "`true` where this is the answer to an earlier attempt, sent again; nothing was run.",
    "schema": {"type": "string", "enum": [REPLAYED[1].decode()]},
}


A_UUID: Final = 36
"""How long one is."""


def _characters(rule: KeyRule) -> str:
    if rule.punctuation is None:
        return "printable ASCII characters"
    marks = ["blanks" if mark == " " else f"`{mark}`" for mark in rule.punctuation]
    return " and ".join(filter(None, ["letters, digits", ", ".join(marks)]))


def key_description(policy: Policy) -> str:
    """What callers have to know of the key: how it is written, and for how long it is remembered."""
    rule = policy.key
    if rule.syntax is KeySyntax.UUID:
        written = "A UUID"
    else:
        written = f"{rule.min_length} to {rule.max_length} {_characters(rule)}"
        if rule.min_length <= A_UUID <= rule.max_length and (rule.punctuation is None or "-" in rule.punctuation):
            written += "; a UUID is a good choice"
    kept = f"It is remembered for {_spoken(policy.key_retention)}"
    if policy.body_retention != policy.key_retention:
        kept += f", the body of its answer for {_spoken(policy.body_retention)}"
    return (
        "Names what is asked for: a new key for every new intent, the same key and the same request for every attempt "
        f"at it. {written}. {kept}."
    )


def document(schema: dict[str, Any], path: str, method: str, policy: Policy) -> None:
    """Add what callers of one operation have to know to an OpenAPI document that has it. Done twice it is done once."""
    described = schema.get("paths", {}).get(path, {}).get(method.lower())
    if described is not None:
        _describe(described, policy)
        schema.setdefault("components", {}).setdefault("schemas", {})[_COMPONENT] = dict(_PROBLEM_SCHEMA)


def document_lookup(schema: dict[str, Any], path: str, method: str, policy: Policy) -> None:
    """Add what callers of a look-up have to know (see twicesafe.lookup). Done twice it is done once."""
    described = schema.get("paths", {}).get(path, {}).get(method.lower())
    if described is not None:
        _take_parameters(described, policy)
        by_status: dict[int, list[str]] = {400: ["key-missing", "key-invalid"], 404: ["key-unknown", "key-closed"]}
        by_status.setdefault(policy.in_progress_status, []).append("in-progress")
        by_status.setdefault(409, []).extend(["interrupted", "outcome-unknown"])
        _answer_all(described.setdefault("responses", {}), by_status)
        schema.setdefault("components", {}).setdefault("schemas", {})[_COMPONENT] = dict(_PROBLEM_SCHEMA)


def _take_parameters(described: dict[str, Any], policy: Policy) -> None:
    ours = list(_key_parameters(policy))
    # An endpoint may well read its key itself, and spell the header otherwise.
    others = [one for one in described.get("parameters", ()) if not any(_is_same(one, mine) for mine in ours)]
    if others or ours:
        described["parameters"] = [*others, *ours]


def _describe(described: dict[str, Any], policy: Policy) -> None:
    rule = policy.key
    _take_parameters(described, policy)
    described[CONTRACT] = {
        "header": policy.header or None,
        "required": policy.required,
        "key": {"format": str(rule.syntax), "minLength": rule.min_length, "maxLength": rule.max_length},
        "key_retention_seconds": int(policy.key_retention.total_seconds()),
        "body_retention_seconds": int(policy.body_retention.total_seconds()),
    }
    if policy.fields:
        described[CONTRACT]["fields"] = [{"in": _PLACES[type(field)], "name": field.name} for field in policy.fields]
    body = described.get("requestBody", {})
    names = " or ".join(f"`{field.name}`" for field in policy.fields if not isinstance(field, QueryParameter))
    if names and "$ref" not in body and _IN_BODY.format(names) not in body.get("description", ""):
        told = f"{_IN_BODY.format(names)} {key_description(policy)}"
        described["requestBody"] = {**body, "description": " ".join(filter(None, (body.get("description"), told)))}
    responses = described.setdefault("responses", {})
    headers = _headers_of(policy)
    for status, response in responses.items():
        if str(status).startswith("2") and "$ref" not in response:
            response["headers"] = {**headers, **response.get("headers", {})}
    by_status: dict[int, list[str]] = {400: [*(["key-missing"] if policy.required else []), "key-invalid"]}
    by_status.setdefault(policy.in_progress_status, []).append("in-progress")
    by_status.setdefault(PROBLEMS["outcome-unknown"].status, []).append("outcome-unknown")
    by_status.setdefault(policy.mismatch_status, []).append("key-reused")
    if policy.counts_keys:
        by_status.setdefault(PROBLEMS["too-many-keys"].status, []).append("too-many-keys")
    if policy.refuse_duplicates:
        by_status.setdefault(PROBLEMS["already-done"].status, []).append("already-done")
    _answer_all(responses, by_status)


def _answer_all(responses: dict[str, Any], by_status: Mapping[int, Sequence[str]]) -> None:
    for number, kinds in by_status.items():
        again = {_cased(RETRY_AFTER): dict(_RETRY_AFTER)} if {"in-progress", "too-many-keys"} & set(kinds) else {}
        _answer(responses, number, kinds, headers=again)


def _key_parameters(policy: Policy) -> Iterator[dict[str, Any]]:
    rule = policy.key
    shape: dict[str, Any] = {"minLength": rule.min_length, "maxLength": rule.max_length}
    if rule.punctuation is not None:
        # No more than ECMA 262 lets be escaped.
        marks = "".join(f"\\{mark}" if mark in "\\]^-" else mark for mark in rule.punctuation)
        shape["pattern"] = f"^[0-9A-Za-z{marks}]*$"
    places = [("header", policy.header)] if policy.header else []
    places += [("query", field.name) for field in policy.fields if isinstance(field, QueryParameter)]
    for place, name in places:
        yield {
            "name": name,
            "in": place,
            # Of several places any one will do.
            "required": policy.required and len(policy.fields) + bool(policy.header) == 1,
            "description": key_description(policy),
            "schema": {"type": "string", **({"format": "uuid"} if rule.syntax is KeySyntax.UUID else shape)},
        }


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    names = str(one.get("name")), str(other["name"])
    same = names[0].lower() == names[1].lower() if other["in"] == "header" else names[0] == names[1]
    return same and one.get("in") == other["in"]


def _headers_of(policy: Policy) -> dict[str, Any]:
    """What the answers to requests under a key carry besides what the operation says."""
    headers: dict[str, Any] = {policy.marker: dict(_REPLAYED)} if policy.marker else {}
    if policy.retention_header:
        seconds = int(policy.key_retention.total_seconds())
        headers[policy.retention_header] = {
            "description": "For how many seconds the key is remembered.",
            "schema": {"type": "integer", "enum": [seconds]},
        }
    return headers


def _answer(responses: dict[str, Any], status: int, kinds: Sequence[str], *, headers: Mapping[str, Any]) -> None:
    """Document these problems of one status, beside whatever is documented of that status already."""
    response = responses.setdefault(str(status), {"description": ""})
    if "$ref" in response:
        return
    media = response.setdefault("content", {}).setdefault(_MEDIA_TYPE, {})
    theirs = media.get("schema")
    if theirs is None:
        media["schema"] = dict(_PROBLEM)
    elif theirs == _PROBLEM or _PROBLEM in theirs.get("anyOf", ()):
        return
    else:
        media["schema"] = {"anyOf": [theirs, dict(_PROBLEM)]}
    texts = [response["description"], *(PROBLEMS[kind].title for kind in kinds)]
    response["description"] = "; or: ".join(filter(None, texts))
    if headers:
        response["headers"] = {**headers, **response.get("headers", {})}


def _cased(name: bytes) -> str:
    return name.decode().title()


def _spoken(duration: timedelta) -> str:
    """`24 hours`, `30 days`, `90 minutes`: the largest unit that leaves no remainder, days from two days on."""
    seconds = int(duration.total_seconds())
    for unit, size, least in (("day", 86_400, 2), ("hour", 3600, 1), ("minute", 60, 1)):
        if seconds and seconds % size == 0 and seconds // size >= least:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{seconds} seconds"
