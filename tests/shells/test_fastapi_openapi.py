"""What the OpenAPI document of an application says of its operations."""

import json
import re
from datetime import timedelta
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, FastAPI, Header
from fastapi.openapi.utils import get_openapi

from tests.shells.service import Service, Work, run
from twicesafe import KeyRule, KeySyntax, Policy
from twicesafe.fastapi import Idempotency
from twicesafe.openapi import key_description
from twicesafe.stores.memory import AsyncMemoryStore

PROBLEM = {"$ref": "#/components/schemas/IdempotencyProblem"}


def served_with(**settings) -> Service:
    """`POST /jobs` under these settings, and `POST /plain` under none."""
    served = Service()

    @served.app.post("/jobs", status_code=201)
    @served.safe.operation(**settings)
    async def work(body: Work) -> dict[str, int]:
        """Append to the ledger."""
        return {}

    @served.app.post("/hidden", include_in_schema=False)
    @served.safe.operation()
    async def hidden() -> None: ...

    @served.app.post("/plain")
    async def plain(body: Work) -> dict[str, int]:
        return {}

    return served


def described(schema: dict[str, Any], path: str = "/jobs", method: str = "post") -> dict[str, Any]:
    return schema["paths"][path][method]


def key_of(operation: dict[str, Any]) -> dict[str, Any]:
    found = [one for one in operation["parameters"] if one["in"] == "header" and "key" in one["name"].lower()]
    assert len(found) == 1, operation["parameters"]
    return found[0]


@pytest.mark.parametrize("required", [False, True])
def test_the_key_is_a_documented_header(required):
    """R3, R4, R20: the header is there with its format and retention, required where it is, and nowhere else."""
    schema = served_with(required=required, key_retention=timedelta(days=30)).app.openapi()
    key = key_of(described(schema))
    assert (key["name"], key["required"]) == ("Idempotency-Key", required)
    assert {"type": "string", "minLength": 1, "maxLength": 255}.items() <= key["schema"].items()
    assert "remembered for 30 days, the body of its answer for 24 hours" in key["description"]
    assert "parameters" not in described(schema, "/plain")
    assert described(schema)["description"] == "Append to the ledger."


def test_a_uuid_under_another_name():
    """R4, R5: format and name of the header are the operation's own."""
    schema = served_with(header="X-Request-Key", key=KeyRule(KeySyntax.UUID)).app.openapi()
    key = key_of(described(schema))
    assert key["name"] == "X-Request-Key"
    assert key["schema"]["format"] == "uuid"
    assert "maxLength" not in key["schema"]


def test_what_a_key_may_hold_is_documented():
    """R4: a rule's punctuation is a pattern for machines and a sentence for people; a UUID is advised where it fits."""
    for rule, pattern, said in (
        (
            KeyRule(max_length=36, punctuation="-_ "),
            r"^[0-9A-Za-z\-_ ]*$",
            "letters, digits and `-`, `_`, blanks; a UUID",
        ),
        (KeyRule(max_length=32, punctuation="-_"), r"^[0-9A-Za-z\-_]*$", "1 to 32 letters, digits and `-`, `_`. It is"),
        (KeyRule(punctuation=""), "^[0-9A-Za-z]*$", "1 to 255 letters, digits. It is"),
        (KeyRule(max_length=20), None, "1 to 20 printable ASCII characters. It is"),
    ):
        key = key_of(described(served_with(key=rule).app.openapi()))
        assert key["schema"].get("pattern") == pattern
        assert said in key["description"]
        if pattern is not None:
            assert re.fullmatch(pattern, "aZ9" + rule.punctuation) and not re.fullmatch(pattern, "a~")


def test_answers_to_keys_are_documented_beside_the_routes_own():
    """R21: 400, 409 and 422 are problem+json, FastAPI's own 422 stays, and the marker of a replay is there."""
    schema = served_with(required=True).app.openapi()
    responses = described(schema)["responses"]
    for status in ("400", "409", "422"):
        assert responses[status]["content"]["application/problem+json"]["schema"] == PROBLEM
    assert "application/json" in responses["422"]["content"]
    assert responses["422"]["description"] == "Validation Error; or: Idempotency-Key is already used"
    assert responses["400"]["description"] == "Idempotency-Key is missing; or: Idempotency-Key is malformed"
    assert "Retry-After" in responses["409"]["headers"]
    assert "Idempotent-Replayed" in responses["201"]["headers"]
    assert set(described(schema, "/plain")["responses"]) == {"200", "422"}
    assert "/hidden" not in schema["paths"]
    problem = schema["components"]["schemas"]["IdempotencyProblem"]
    assert {"type", "title", "status", "detail", "retryable", "safe_new_key"} == set(problem["properties"])


def test_the_contract_is_there_for_machines():
    """R20: header, format and retention, in seconds, without reading prose."""
    schema = served_with(key_retention=timedelta(hours=48), body_retention=timedelta(hours=1)).app.openapi()
    assert described(schema)["x-idempotency"] == {
        "header": "Idempotency-Key",
        "required": False,
        "key": {"format": "opaque", "minLength": 1, "maxLength": 255},
        "key_retention_seconds": 172_800,
        "body_retention_seconds": 3600,
    }


def test_what_the_problems_say_fits_what_is_documented():
    """R21: a real refusal has exactly the documented members."""

    async def trial():
        served = served_with(required=True)
        refused = await served.post(key=None)
        assert served.ledger == []
        documented = served.app.openapi()["components"]["schemas"]["IdempotencyProblem"]["properties"]
        assert set(refused.problem) == set(documented)

    run(trial())


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_openapi_of_the_applications_own(when):
    """R20: a customised `app.openapi` keeps what it adds and has ours too, set before Idempotency is made or after."""

    async def trial():
        app = FastAPI()

        def custom() -> dict[str, Any]:
            if app.openapi_schema is None:
                app.openapi_schema = get_openapi(title="Custom", version="7", routes=app.routes)
            return app.openapi_schema

        if when == "before":
            app.openapi = custom
        safe = Idempotency(app, AsyncMemoryStore(), scope=lambda: "ann")

        @app.post("/jobs")
        @safe.operation()
        async def work() -> None: ...

        if when == "after":
            app.openapi = custom
            assert "409" not in described(app.openapi())["responses"]
            assert "409" in described(safe.document(custom()))["responses"]
            app.openapi_schema = None
        served = Service.__new__(Service)
        served.app = app
        for _ in range(2):
            reply = await served.post("/openapi.json", method="GET", user=None, key=None)
            schema = json.loads(reply.body)
            assert schema["info"] == {"title": "Custom", "version": "7"}
            assert described(schema)["responses"]["409"]["content"]["application/problem+json"]["schema"] == PROBLEM

    run(trial())


def test_a_route_that_documents_the_same_statuses_keeps_what_it_says():
    """R21: descriptions and models of the route's own 409 and 400 stand beside ours, once, however often it is made."""
    served = Service()
    own = {"model": Work, "description": "Sold out"}
    theirs = {"description": "Odd", "content": {"application/problem+json": {"schema": {"type": "object"}}}}

    @served.app.post("/jobs", responses={409: own, 400: theirs, "4XX": {"description": "No"}})
    @served.safe.operation()
    async def work(idempotency_key: Annotated[str, Header()]) -> None: ...

    schema = json.loads(json.dumps(served.app.openapi()))
    assert served.safe.document(served.safe.document(json.loads(json.dumps(schema)))) == schema
    responses = described(schema)["responses"]
    assert responses["409"]["description"].startswith("Sold out; or: ")
    assert set(responses["409"]["content"]) == {"application/json", "application/problem+json"}
    assert responses["400"]["content"]["application/problem+json"]["schema"] == {"anyOf": [{"type": "object"}, PROBLEM]}
    assert key_of(described(schema))["name"] == "Idempotency-Key"


def test_operations_of_routers_under_prefixes_are_documented():
    """R20: included under a prefix, twice, with dependencies: each path says it."""
    served = Service()
    router = APIRouter()

    @router.post("/jobs")
    @served.safe.operation()
    async def work() -> None: ...

    served.app.include_router(router, prefix="/v1")
    served.app.include_router(router, prefix="/v2")
    schema = served.app.openapi()
    for prefix in ("/v1", "/v2"):
        assert "409" in described(schema, f"{prefix}/jobs")["responses"]


@pytest.mark.parametrize(
    ("retention", "said"),
    [
        (timedelta(hours=24), "24 hours"),
        (timedelta(days=1, hours=12), "36 hours"),
        (timedelta(days=365), "365 days"),
        (timedelta(minutes=90), "90 minutes"),
        (timedelta(hours=1), "1 hour"),
        (timedelta(seconds=61), "61 seconds"),
    ],
)
def test_retention_is_said_in_words(retention, said):
    """R20: durations as people say them."""
    assert f"It is remembered for {said}." in key_description(Policy(key_retention=retention, body_retention=retention))
