"""What both DynamoDB stores share of botocore: the client's settings, and what an error means for a write.

botocore repeats requests by itself, out of sight. A store's own client is told not to: what provably was not done (it
was throttled) the store repeats, and the rest is for whoever can tell a lost answer from a lost request. A client of
somebody else's may repeat what it likes: every write is conditioned so that its second arrival changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ParamValidationError,
    ProxyConnectionError,
    SSLError,
)
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from twicesafe.errors import (
    AmbiguousWriteError,
    ConfigurationError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from twicesafe.stores.dynamodb_clock import Clock
from twicesafe.stores.dynamodb_requests import THROTTLED, TOO_LARGE, Answer, Call

DEFAULT_TIMEOUT: Final = timedelta(seconds=5)
"""DynamoDB answers within milliseconds; an answer that takes this long is lost."""

CONNECTIONS: Final = 50
"""As many requests at once as a busy process has; botocore's own 10 would queue."""

THROTTLED_ATTEMPTS: Final = 5
"""With full jitter some 0.4 s in the mean: as long as an on-demand table needs to make room for a burst."""
_FIRST_PAUSE: Final = 0.05

_NEVER_LEFT: Final = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError, SSLError)
"""No connection was made."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the records are. `endpoint` None: AWS's own in that region."""

    table: str
    region: str | None
    endpoint: str | None

    @property
    def url(self) -> str:
        """As messages show it; it holds no secret."""
        query = "" if self.endpoint is None else f"?endpoint={self.endpoint}"
        return f"dynamodb://{self.region or '...'}/{self.table}{query}"


def settings(timeout: float) -> dict[str, Any]:
    """The settings of a store's own client."""
    return {
        "connect_timeout": timeout,
        "read_timeout": timeout,
        "max_pool_connections": CONNECTIONS,
        "tcp_keepalive": True,
        "retries": {"mode": "standard", "total_max_attempts": 1},
    }


def config(timeout: float) -> Config:
    """The same for boto3."""
    return Config(**settings(timeout))


def repeats(client: Any) -> bool:
    """Whether this client may send a request more than once."""
    told: Mapping[str, Any] = client.meta.config.retries or {}
    return told.get("total_max_attempts") != 1


def of_response(response: Mapping[str, Any], clock: Clock, sent: int) -> Answer:
    """The answer to a request that was done."""
    about = response.get("ResponseMetadata", {})
    right = clock.observe(about.get("HTTPHeaders", {}).get("date"), sent, clock.ticks())
    return Answer(response, repeated=bool(about.get("RetryAttempts")), jumped=not right)


def of_error(error: Exception, call: Call, place: Place, clock: Clock, sent: int, *, repeats: bool) -> Answer:
    """The answer that an exception stands for. Raises what it means where it is none; foreign ones as they are."""
    if not isinstance(error, ClientError):
        if not isinstance(error, BotoCoreError | ResponseParserError):
            raise error
        code = type(error).__name__ if isinstance(error, ParamValidationError) else ""
        return _or_raised(call, Answer({}, error=_unanswered(error, call, place, repeats=repeats), code=code), error)
    answer = of_response(error.response, clock, sent)
    about: Mapping[str, Any] = error.response.get("Error", {})
    code, message = str(about.get("Code", "")), str(about.get("Message", ""))
    if code == "ConditionalCheckFailedException":
        return answer._replace(refused=True)
    answer = answer._replace(code=code)
    if code == "ValidationException" and "tem size" in message:
        if call.sheds:
            return answer._replace(code=TOO_LARGE)
        problem: StoreError = StoreUnavailableError(
            "the record would be over DynamoDB's limit of 400 KB for an item, and was not written"
        )
    elif code == "ResourceNotFoundException":
        problem = SchemaError(f"the table of twicesafe is missing: run `twicesafe schema apply --store {place.url}`")
    elif error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400) >= 500 and call.writes:
        problem = AmbiguousWriteError(f"DynamoDB failed ({code}), and the write may stand: {message}")
    else:
        problem = StoreUnavailableError(f"DynamoDB refused, and changed nothing ({code}): {message}")
    return _or_raised(call, answer._replace(error=problem), error)


def _or_raised(call: Call, answer: Answer, cause: Exception) -> Answer:
    assert answer.error is not None
    answer.error.__cause__ = cause
    if not call.tolerant:
        raise answer.error
    return answer


def _unanswered(error: Exception, call: Call, place: Place, *, repeats: bool) -> StoreError:
    """A client that repeats says how its last try failed, and nothing of the ones before it."""
    known = isinstance(error, _NEVER_LEFT) and not repeats
    left = isinstance(error, HTTPClientError | ResponseParserError) and not known
    if left and call.writes:
        return AmbiguousWriteError(f"the answer of {place.url} was lost, and the write may stand: {error}")
    return StoreUnavailableError(f"no answer from {place.url}, and nothing was changed: {error}")


def pause_before_repeating(error: Exception, attempt: int) -> float | None:
    """Seconds to wait before the request is sent again, or None where it is not to be."""
    if attempt >= THROTTLED_ATTEMPTS or not isinstance(error, ClientError):
        return None
    if error.response.get("Error", {}).get("Code") not in THROTTLED:
        return None
    return random.uniform(0, _FIRST_PAUSE * 2.0**attempt)  # noqa: S311 - jitter is no secret


def could_not_open(error: Exception, place: Place) -> ConfigurationError:
    """What it means that no client could be made: nothing was sent yet."""
    return ConfigurationError(f"no client could be made for {place.url}: {error}")
