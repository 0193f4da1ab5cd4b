"""What an OpenAPI document says of operations under keys (R4, R20, R21). Dictionaries, no framework.

A framework declares the key's header with the schema that `key_schema` makes. That schema names the operation, and by
it `document` finds its operations again, whoever put the document together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from twicesafe.core.keys import KeySyntax
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.problems import PROBLEM_JSON, PROBLEMS, REPLAYED, RETRY_AFTER

NAME: Final = "x-twicesafe-operation"
CONTRACT: Final = "x-idempotency"
"""On every operation under keys: its contract, for machines."""

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


def key_schema(operation: Operation) -> dict[str, Any]:
    """The schema of the key's header."""
    rule = operation.policy.key
    if rule.syntax is KeySyntax.UUID:
        return {"type": "string", "format": "uuid", NAME: operation.name}
    return {"type": "string", "minLength": rule.min_length, "maxLength": rule.max_length, NAME: operation.name}


def key_description(policy: Policy) -> str:
    """What callers have to know of the key: how it is written, and for how long it is remembered."""
    rule = policy.key
    if rule.syntax is KeySyntax.UUID:
        written = "A UUID"
    else:
        written = f"{rule.min_length} to {rule.max_length} printable ASCII characters; a UUID is a good choice"
    kept = f"It is remembered for {_spoken(policy.key_retention)}"
    if policy.body_retention != policy.key_retention:
        kept += f", the body of its answer for {_spoken(policy.body_retention)}"
    return (
        "Names what is asked for: a new key for every new intent, the same key and the same request for every attempt "
        f"at it. {written}. {kept}."
    )


def document(schema: dict[str, Any], operations: Mapping[str, Operation]) -> dict[str, Any]:
    """Add to an OpenAPI document what its operations under keys answer. Done twice it is done once."""
    for described in _operations(schema):
        parameters = described.get("parameters", [])
        for parameter in parameters:
            operation = operations.get(parameter.get("schema", {}).get(NAME, ""))
            if operation is not None:
                parameter["required"] = operation.policy.required
                described["parameters"] = [one for one in parameters if one is parameter or not _same(one, parameter)]
                _describe(described, operation.policy)
                schema.setdefault("components", {}).setdefault("schemas", {})[_COMPONENT] = dict(_PROBLEM_SCHEMA)
                break
    return schema


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both are one header: an endpoint may well read its key itself, and spell it otherwise."""
    return bool(one.get("in") == other["in"] and one.get("name", "").lower() == other["name"].lower())


def _operations(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in schema.get("paths", {}).values():
        for described in path.values():
            if isinstance(described, dict):
                yield described


def _describe(described: dict[str, Any], policy: Policy) -> None:
    rule = policy.key
    described[CONTRACT] = {
        "header": policy.header,
        "required": policy.required,
        "key": {"format": str(rule.syntax), "minLength": rule.min_length, "maxLength": rule.max_length},
        "key_retention_seconds": int(policy.key_retention.total_seconds()),
        "body_retention_seconds": int(policy.body_retention.total_seconds()),
    }
    responses = described.setdefault("responses", {})
    for status, response in responses.items():
        if str(status).startswith("2") and "$ref" not in response:
            response.setdefault("headers", {}).setdefault(_cased(REPLAYED[0]), dict(_REPLAYED))
    _answer(responses, *(["key-missing"] if policy.required else []), "key-invalid")
    _answer(responses, "in-progress", "outcome-unknown", headers={_cased(RETRY_AFTER): dict(_RETRY_AFTER)})
    _answer(responses, "key-reused")


def _answer(responses: dict[str, Any], *kinds: str, headers: Mapping[str, Any] | None = None) -> None:
    """Document these problems, all of one status, beside whatever is documented of that status already."""
    response = responses.setdefault(str(PROBLEMS[kinds[0]].status), {"description": ""})
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
