"""A target described by an operation of an OpenAPI document: its URL, its headers, and a body made from its schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urljoin

from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.findings import Lines
from twicesafe.conformance.target import CARRIERS, USUAL_HEADER, Target, Template, keyed, replaced

METHODS: Final = ("post", "patch", "put", "delete", "get")
DEEPEST: Final = 12
"""Schemas within schemas; one that contains itself is not followed for ever."""

Document = Mapping[str, Any]


def from_openapi(path: Path, operation: str, *, server: str = "", lines: Lines = (), header: str = "") -> Target:
    """The target of the operation with this operationId, or written `POST /charges`.

    `server` replaces the document's own; `lines` are added, credentials above all, which no document has.
    """
    document = _read(path)
    try:
        return _target(document, operation, server, lines, header)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CannotCheckError(f"{path} is not as OpenAPI documents are: {type(error).__name__}, {error}") from error


def _target(document: Document, operation: str, server: str, lines: Lines, header: str) -> Target:
    method, where, found, shared = _operation(document, operation)
    parameters = [_resolved(document, one) for one in (*shared, *found.get("parameters", ()))]
    url = _url(document, server, where, parameters)
    mine: list[tuple[str, str]] = []
    carrier = header
    for parameter in parameters:
        name = str(parameter.get("name", ""))
        if parameter.get("in") != "header":
            continue
        if name.lower() in {known.lower() for known in (header, *CARRIERS) if known}:
            carrier = name
        elif parameter.get("required"):
            mine.append((name, _text(_sample(document, parameter))))
    kind, body = _body(document, found)
    if body is not None:
        mine.append(("Content-Type", kind))
    template = Template(method.upper(), url, replaced(tuple(mine), lines), body)
    return Target(request=keyed(template, carrier or USUAL_HEADER), name=str(found.get("summary", "")))


def _read(path: Path) -> Document:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotCheckError(f"{path} cannot be read: {error}") from error
    try:
        document = json.loads(text) if text.lstrip().startswith("{") else _yaml(text)
    except ValueError as error:
        raise CannotCheckError(f"{path} is neither JSON nor YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or "paths" not in document:
        raise CannotCheckError(f"{path} is no OpenAPI document: it has no paths")
    return document


def _yaml(text: str) -> object:
    try:
        import yaml
    except ModuleNotFoundError:
        raise CannotCheckError(
            "the package PyYAML is missing: pip install pyyaml, or give the document as JSON"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _operation(document: Document, wanted: str) -> tuple[str, str, Document, list[Document]]:
    known = []
    for where, item in document["paths"].items():
        item = _resolved(document, item)
        for method in METHODS:
            found = item.get(method)
            if found is None:
                continue
            if wanted in (found.get("operationId"), f"{method.upper()} {where}"):
                return method, where, found, list(item.get("parameters", ()))
            known.append(found.get("operationId") or f"{method.upper()} {where}")
    raise CannotCheckError(f"the document has no operation {wanted}; it has {', '.join(known[:20]) or 'none'}")


def _url(document: Document, server: str, where: str, parameters: Iterable[Document]) -> str:
    given = next((str(one.get("url", "")) for one in document.get("servers", ())), "")
    origin = urljoin(server, given) if server and given.startswith("/") else server or given
    if "://" not in origin:
        raise CannotCheckError("the document does not say where the service is: give --server http://127.0.0.1:8000")
    query = []
    for parameter in parameters:
        name = str(parameter.get("name", ""))
        if parameter.get("in") == "path":
            where = where.replace(f"{{{name}}}", _escaped(_text(_sample(document, parameter))))
        elif parameter.get("in") == "query" and parameter.get("required"):
            query.append(f"{quote(name, safe='')}={_escaped(_text(_sample(document, parameter)))}")
    return origin.rstrip("/") + where + (f"?{'&'.join(query)}" if query else "")


def _body(document: Document, operation: Document) -> tuple[str, str | None]:
    content = _resolved(document, operation.get("requestBody", {})).get("content", {})
    kind = next((one for one in content if one.partition(";")[0].endswith("json")), None)
    if kind is None:
        if content:
            raise CannotCheckError(f"the operation takes {next(iter(content))}; only JSON is made from a schema")
        return "", None
    media = content[kind]
    named = [_resolved(document, one).get("value") for one in media.get("examples", {}).values()]
    if "example" in media or named:
        return kind, _json(media.get("example", named[0] if named else None))
    return kind, _json(_made(document, media.get("schema", {}), 0))


def _sample(document: Document, parameter: Document) -> Any:
    if "example" in parameter:
        return parameter["example"]
    return _made(document, parameter.get("schema", {"type": "string"}), 0)


def _made(document: Document, schema: Document, depth: int) -> Any:
    """A value that the schema allows, as small as may be, and unique where it can be."""
    schema = _resolved(document, schema)
    if depth > DEEPEST:
        return None
    for word in ("const", "default", "example"):
        if word in schema:
            return schema[word]
    if schema.get("examples") or schema.get("enum"):
        return (schema.get("examples") or schema["enum"])[0]
    for word in ("oneOf", "anyOf"):
        if schema.get(word):
            return _made(document, schema[word][0], depth + 1)
    if schema.get("allOf"):
        parts = [_resolved(document, one) for one in schema["allOf"]]
        whole = {name: value for part in parts for name, value in part.items()}
        whole["properties"] = {name: value for part in parts for name, value in part.get("properties", {}).items()}
        whole["required"] = [name for part in parts for name in part.get("required", ())]
        return _made(document, whole, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    match kind:
        case "object":
            inner = schema.get("properties", {})
            return {name: _made(document, inner.get(name, {}), depth + 1) for name in schema.get("required", ())}
        case "array":
            return [_made(document, schema.get("items", {}), depth + 1)] * int(schema.get("minItems", 0))
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
    return _string(schema)


def _number(schema: Document) -> int | float:
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    least = 0 if isinstance(least, bool) else least
    most = schema.get("maximum", schema.get("exclusiveMaximum", least + 1))
    wanted = least + 1
    step: int | float = schema.get("multipleOf", 1)
    return max(step, wanted - wanted % step) if wanted <= most else least


def _string(schema: Document) -> str:
    match schema.get("format"):
        case "uuid":
            return "{{unique}}"
        case "date-time":
            return "2030-01-01T00:00:00Z"
        case "date":
            return "2030-01-01"
        case "email":
            return "{{unique}}@example.com"
        case "uri":
            return "https://example.com/{{unique}}"
    if "pattern" in schema:
        raise CannotCheckError(f"nothing can be made that matches {schema['pattern']!r}: give the operation an example")
    least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", 36))
    return "{{unique}}" if most >= 36 and least <= 36 else "a" * max(1, min(least, most))


def _resolved(document: Document, found: Document) -> Document:
    """What a $ref refers to, within the document."""
    for _ in range(DEEPEST):
        reference = found.get("$ref")
        if reference is None:
            return found
        if not str(reference).startswith("#/"):
            raise CannotCheckError(f"{reference} is in another document: bundle them into one")
        at: Any = document
        for name in reference[2:].split("/"):
            name = name.replace("~1", "/").replace("~0", "~")
            if not isinstance(at, dict) or name not in at:
                raise CannotCheckError(f"the document has no {reference}")
            at = at[name]
        found = at
    raise CannotCheckError("the document's references go round in circles")


def _text(value: object) -> str:
    return value if isinstance(value, str) else _json(value).strip('"')


def _json(value: object) -> str:
    # YAML has dates, which JSON writes as text.
    return json.dumps(value, ensure_ascii=False, default=lambda one: one.isoformat())


def _escaped(value: str) -> str:
    """Percent-encoded, except for a place to fill in."""
    return value if "{{" in value else quote(value, safe="")
