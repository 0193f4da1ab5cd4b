"""What is asked of DynamoDB, and what it says: requests for one table, each write on a condition.

Conditions and the attributes they name are written once, here, in DynamoDB's own language.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from twicesafe.core.record import Micros, Ownership, Record, RecordState, StoredResponse
from twicesafe.errors import LeaseLostError, StoreError
from twicesafe.stores.dynamodb_clock import Window
from twicesafe.stores.dynamodb_items import IN_TRANSACTION, Item, Value, key, number, of_ends, of_response

R = TypeVar("R")


class Call(NamedTuple):
    """One request to DynamoDB, by the name its clients call it."""

    name: str
    arguments: dict[str, Any]
    writes: bool = True
    """Whether a lost answer leaves open what became of it."""
    tolerant: bool = False
    """Whether a failure is handed back as an answer, to be judged by whoever called."""
    sheds: bool = False
    """Whether an item over DynamoDB's limit is answered with TOO_LARGE, because there is a smaller one."""


class Pause(NamedTuple):
    """Let time pass."""

    seconds: float


class Answer(NamedTuple):
    """What DynamoDB said."""

    response: Mapping[str, Any]
    refused: bool = False
    """The condition did not hold; `item` is the item it did not hold for."""
    repeated: bool = False
    """The request may have arrived more than once: the client repeats what was not answered."""
    jumped: bool = False
    """The answer's date contradicts the clock that the request was made by."""
    error: StoreError | None = None
    code: str = ""
    """DynamoDB's name for the error."""

    @property
    def item(self) -> Item | None:
        """The item that came with it, if one did."""
        found: Item | None = self.response.get("Item") or self.response.get("Attributes") or None
        return found


Step: TypeAlias = Call | Pause
Steps: TypeAlias = Generator[Step, Answer, R]

TOO_LARGE: Final = "item too large"
"""The code of an answer that says that the item would be over DynamoDB's limit of 400 KB."""

THROTTLED: Final = frozenset(
    {
        "ProvisionedThroughputExceededException", "RequestLimitExceeded", "Throttling", "ThrottlingException",
        "TransactionConflictException", "TransactionInProgressException",
    }
)  # fmt: skip
"""Codes that say: not now, and nothing was done. A conflict is with a transaction that is being committed."""

SEEN: Final = (
    "#owner = :seen_owner AND #epoch = :seen_epoch AND #state = :seen_state "
    "AND #lease_until = :seen_lease_until AND #key_until = :seen_key_until"
)
"""The item is still what was judged. lease_until tells a renewal in between."""
UNANSWERED: Final = "attribute_not_exists(#status)"
"""No answer has begun to leave."""
OWNED: Final = "#owner = :owner AND #epoch = :epoch"
"""I3."""
UNFINISHED: Final = "(#state = :claimed OR #state = :unknown)"

CLAIMED: Final[Value] = {"S": RecordState.CLAIMED.value}
COMPLETED: Final[Value] = {"S": RecordState.COMPLETED.value}
UNKNOWN: Final[Value] = {"S": RecordState.UNKNOWN.value}


class Marker:
    """The last write of a claim that may stand, and the item that it replaced."""

    __slots__ = ("own", "replaced")

    def __init__(self) -> None:
        self.own: Ownership | None = None
        self.replaced: Item | None = None


def note(marker: Marker | None, own: Ownership, replaced: Item | None) -> None:
    """Where there is a marker: this is about to be written, in the place of that."""
    if marker is not None:
        marker.own, marker.replaced = own, replaced


class Requests:
    """Requests for one table."""

    def __init__(self, table: str) -> None:
        self.table: Final = table

    def get(self, digest: bytes) -> Call:
        arguments = {"TableName": self.table, "Key": key(digest), "ConsistentRead": True}
        return Call("get_item", arguments, writes=False)

    def update(
        self, digest: bytes, update: str, condition: str, values: dict[str, Value], returns: str = "NONE"
    ) -> Call:
        arguments = {"Key": key(digest), "UpdateExpression": update, "ReturnValues": returns}
        return self.write("update_item", arguments, condition, values)

    def delete(self, digest: bytes, condition: str, values: dict[str, Value]) -> Call:
        return self.write("delete_item", {"Key": key(digest)}, condition, values)

    def write(self, name: str, arguments: dict[str, Any], condition: str, values: dict[str, Value]) -> Call:
        return Call(name, {**arguments, **self.conditioned(condition, values, arguments.get("UpdateExpression", ""))})

    def conditioned(self, condition: str, values: dict[str, Value], update: str = "") -> dict[str, Any]:
        """The arguments that every conditional write has."""
        arguments: dict[str, Any] = {
            "TableName": self.table,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": names(condition + update),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if values:
            arguments["ExpressionAttributeValues"] = values
        return arguments

    def scan(self, after: Item | None, limit: int, condition: str, values: dict[str, Value], wanted: str = "") -> Call:
        arguments: dict[str, Any] = {
            "TableName": self.table,
            "ConsistentRead": True,
            "FilterExpression": condition,
            "ExpressionAttributeNames": names(condition + wanted),
            "ExpressionAttributeValues": values,
            "Limit": limit,
        }
        if wanted:
            arguments["ProjectionExpression"] = wanted
        if after is not None:
            arguments["ExclusiveStartKey"] = after
        return Call("scan", arguments, writes=False)


def shrinking(response: StoredResponse) -> Iterator[tuple[StoredResponse, bool]]:
    """The answer whole, without its body, and bare of all but its status: the work is done, whatever can be kept."""
    yield response, False
    if response.body is not None:
        yield response._replace(body=None), False
    yield response._replace(headers=(), body=None), True


def completion(
    response: StoredResponse, window: Window, key_us: Micros, body_us: Micros, *, bare: bool = False
) -> tuple[str, dict[str, Value]]:
    """The update that completes a record, and its values. A bare one also drops what a resumption would have needed."""
    attributes = {**of_response(response), **of_ends(window.earliest, window.latest, key_us, body_us)}
    gone = [name for name in ("body", "deflated_body", IN_TRANSACTION) if name not in attributes]
    if bare:
        gone += ["request", "recovery_data"]
    update = f"SET #state = :completed, {assigned(attributes)} REMOVE {', '.join([f'#{name}' for name in gone])}"
    return update, {":completed": COMPLETED, **named(attributes)}


def committing(own: Ownership) -> tuple[str, dict[str, Value]]:
    """The condition under which a transaction commits: the claim stands, as no rival's."""
    return f"{OWNED} AND #state = :claimed", {":claimed": CLAIMED, **of_own(own)}


def of_seen(record: Record) -> dict[str, Value]:
    """The values of SEEN."""
    return {
        ":seen_owner": {"B": record.owner},
        ":seen_epoch": number(record.epoch),
        ":seen_state": {"S": record.state.value},
        ":seen_lease_until": number(record.lease_until),
        ":seen_key_until": number(record.key_until),
    }


def of_own(own: Ownership) -> dict[str, Value]:
    """The values of OWNED."""
    return {":owner": {"B": own.owner}, ":epoch": number(own.epoch)}


@cache
def names(expressions: str) -> dict[str, str]:
    """Every attribute is named by way of this, for many a plain word is reserved."""
    return {f"#{name}": name for name in re.findall(r"#(\w+)", expressions)}


def lease_lost() -> LeaseLostError:
    """I3. Says nothing of whose it is now: that belongs to somebody else."""
    return LeaseLostError("the claim is no longer this owner's: nothing was changed")


def assigned(attributes: Item) -> str:
    return ", ".join([f"#{name} = :{name}" for name in attributes])


def named(attributes: Item) -> dict[str, Value]:
    return {f":{name}": value for name, value in attributes.items()}
