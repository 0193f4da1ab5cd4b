"""The one table: made, and looked at."""

from __future__ import annotations

from typing import Any, Final

from twicesafe.errors import SchemaError, StoreUnavailableError
from twicesafe.stores.dynamodb_items import EXPIRES, KEY
from twicesafe.stores.dynamodb_requests import Answer, Call, Pause, Steps

LOOKS: Final = 120
"""How often a new table is looked at until it is there; AWS takes some ten seconds."""
_LOOK_AGAIN: Final = 0.5

_EXISTS: Final = "ResourceInUseException"
_KEYS: Final = [{"AttributeName": KEY, "KeyType": "HASH"}]


def apply_schema(table: str, url: str) -> Steps[None]:
    """See Store.apply_schema: a table billed by request, with Time To Live on. One that is there is left as it is."""
    made = yield _tolerant(
        "create_table",
        TableName=table,
        KeySchema=_KEYS,
        AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "B"}],
        BillingMode="PAY_PER_REQUEST",
    )
    if made.error is not None and made.code != _EXISTS:
        raise made.error
    for look in range(LOOKS):
        if look:
            yield Pause(_LOOK_AGAIN)
        found = yield Call("describe_table", {"TableName": table}, writes=False, tolerant=True)
        if found.error is None and found.response["Table"]["TableStatus"] == "ACTIVE":
            break
    else:
        raise StoreUnavailableError(f"the table of {url} is still being made: ask again")
    ttl = yield _ttl(table)
    if not _expires(ttl):
        turned_on = yield _tolerant(
            "update_time_to_live",
            TableName=table,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRES},
        )
        # Somebody else's process may have been quicker.
        if turned_on.error is not None:
            ttl = yield _ttl(table)
            if not _expires(ttl):
                raise turned_on.error


def check_schema(table: str, url: str) -> Steps[None]:
    """See Store.check_schema."""
    command = f"run `twicesafe schema apply --store {url}`"
    found = yield Call("describe_table", {"TableName": table}, writes=False)
    told: dict[str, Any] = found.response["Table"]
    types = {one["AttributeName"]: one["AttributeType"] for one in told["AttributeDefinitions"]}
    if told["KeySchema"] != _KEYS or types.get(KEY) != "B":
        raise SchemaError(
            f"{url} is a table of something else: its key must be the binary attribute {KEY}, and nothing more"
        )
    if told["TableStatus"] not in ("ACTIVE", "UPDATING"):
        raise SchemaError(f"the table of {url} is not ready ({told['TableStatus']}): {command}")
    ttl = yield _ttl(table)
    if not _expires(ttl):
        raise SchemaError(f"{url} keeps expired records for ever, its Time To Live is not on {EXPIRES}: {command}")


def _ttl(table: str) -> Call:
    return Call("describe_time_to_live", {"TableName": table}, writes=False)


def _expires(told: Answer) -> bool:
    ttl = told.response.get("TimeToLiveDescription", {})
    return ttl.get("AttributeName") == EXPIRES and ttl.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")


def _tolerant(name: str, **arguments: Any) -> Call:
    return Call(name, arguments, writes=False, tolerant=True)
