"""What an OpenAPI document says of an operation under keys (R4, R20, R21). Dictionaries, no framework."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from twicesafe.core.keys import KeySyntax
from twicesafe.core.policy import Policy
from twicesafe.core.problems import PROBLEM_JSON, PROBLEMS, REPLAYED, RETRY_AFTER

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


def document(schema: dict[str, Any], path: str, method: str, policy: Policy) -> None:
    """Add what callers of one operation have to know to an OpenAPI document that has it. Done twice it is done once."""
    described = schema.get("paths", {}).get(path, {}).get(method.lower())
    if described is not None:
        _describe(described, policy)
        schema.setdefault("components", {}).setdefault("schemas", {})[_COMPONENT] = dict(_PROBLEM_SCHEMA)


def _describe(described: dict[str, Any], policy: Policy) -> None:
    rule = policy.key
    # An endpoint may well read its key itself, and spell the header otherwise.
    others = [one for one in described.get("parameters", ()) if not _is_header(one, policy.header)]
    described["parameters"] = [*others, _key_parameter(policy)]
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


def _key_parameter(policy: Policy) -> dict[str, Any]:
    rule = policy.key
    lengths = {"minLength": rule.min_length, "maxLength": rule.max_length}
    return {
        "name": policy.header,
        "in": "header",
        "required": policy.required,
        "description": key_description(policy),
        "schema": {"type": "string", **({"format": "uuid"} if rule.syntax is KeySyntax.UUID else lengths)},
    }


def _is_header(parameter: Mapping[str, Any], name: str) -> bool:
    return parameter.get("in") == "header" and str(parameter.get("name")).lower() == name.lower()


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
