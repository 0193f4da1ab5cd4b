"""Every setting is documented, with its default, on docs/settings.md."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import Enum
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest

from tests.house.files import repository
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.client import Budgets, BudgetSize, IntentStore, RetryPolicy, Route, Watch
from twicesafe.core.fingerprint import FingerprintRule
from twicesafe.core.first_sent import FirstSent
from twicesafe.core.keys import KeyRule
from twicesafe.core.limits import Limits
from twicesafe.core.policy import Policy
from twicesafe.core.retry_budget import DEFAULT_SIZES
from twicesafe.dashboard import Dashboard
from twicesafe.gateway import CallerClaim, CallerHeader, Gateway, Timeouts, Upstream
from twicesafe.inbox import AsyncInbox, Inbox
from twicesafe.lookup import AsyncKeyLookup, KeyLookup
from twicesafe.once import Once
from twicesafe.opentelemetry import Telemetry
from twicesafe.outbox import AsyncOutbox, DeliveryPolicy, Outbox
from twicesafe.outbox.relay import Relay
from twicesafe.publishers.kafka import KafkaPublisher
from twicesafe.publishers.nats import NatsPublisher
from twicesafe.publishers.rabbitmq import RabbitMQPublisher
from twicesafe.publishers.redis_streams import RedisStreamsPublisher
from twicesafe.publishers.webhooks import WebhookPublisher
from twicesafe.reaper import Reaper
from twicesafe.receiving import AsyncWebhookReceiver
from twicesafe.reconcile import Reconcilers
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.django import AsyncDjangoStore, DjangoStore
from twicesafe.stores.dynamodb import DynamodbStore
from twicesafe.stores.dynamodb_async import AsyncDynamodbStore
from twicesafe.stores.memory import MemoryStore
from twicesafe.stores.psycopg import AsyncPsycopgStore, PsycopgStore
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.redis import AsyncRedisStore, RedisStore
from twicesafe.stores.sealed import AsyncSealedStore, SealedStore
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore, SqlalchemyStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.worker import Worker

SETTINGS = (
    Policy, KeyRule, FingerprintRule, Limits, FirstSent, IdempotencyMiddleware, Once, Reconcilers, Reaper, Worker,
    DeliveryPolicy, Relay, WebhookPublisher, RetryPolicy, Route, BudgetSize, Budgets, Watch, IntentStore,
    Gateway, Upstream, Timeouts, CallerHeader, CallerClaim, SealedStore, AsyncSealedStore, Keyring,
    AsyncpgStore, PsycopgStore, AsyncPsycopgStore, AsyncmyStore, PymysqlStore, SqliteStore, AsyncSqliteStore,
    SqlalchemyStore, AsyncSqlalchemyStore, DjangoStore, AsyncDjangoStore, RedisStore, AsyncRedisStore, DynamodbStore,
    AsyncDynamodbStore, MemoryStore, Outbox, AsyncOutbox, KafkaPublisher, NatsPublisher, RabbitMQPublisher,
    RedisStreamsPublisher, AsyncWebhookReceiver, Inbox, AsyncInbox, KeyLookup, AsyncKeyLookup, Dashboard, Telemetry,
)  # fmt: skip
"""What is set where something is made."""

PAGE = repository()[Path("docs/settings.md")]


def shown(value: Any) -> str:
    """A default as a reader writes it."""
    if value is None or value in ("", (), frozenset()):
        return "none"
    match value:
        case bool():
            return str(value)
        case Enum():
            return value.name if isinstance(value.value, int) else f'"{value.value}"'
        case timedelta():
            seconds = value.total_seconds()
            for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
                if seconds >= 2 * size and seconds % size == 0:
                    return f"{seconds / size:g} {unit}"
            return f"{seconds:g} s" if seconds >= 1 or not seconds else f"{seconds * 1000:g} ms"
        case frozenset():
            return ", ".join(map(str, sorted(value)))
        case int() | float():
            return f"{value:,}"
        case str():
            return f'"{value}"'
        case b"":
            return "none"
        case _ if type(value) in SETTINGS and value == type(value)():
            return f"{type(value).__name__}()"
        case _:
            return "see there"


def rows(name: str) -> dict[str, tuple[str, str]]:
    """The settings in one section of the page: name to default and meaning."""
    section = re.search(rf"^## [^\n]*`{name}`[^\n]*\n(.+?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/settings.md has no section for {name}"
    found = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", section[1], re.MULTILINE)
    return {setting: (default, meaning) for setting, default, meaning in found}


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_every_setting_has_a_row(kind: type) -> None:
    """House: each parameter stands on docs/settings.md with what it is by default and what it means, and no other."""
    taken = signature(kind).parameters
    found = rows(kind.__name__)
    assert set(found) == set(taken), f"{kind.__name__}: {set(found) ^ set(taken)}"
    for name, parameter in taken.items():
        default, meaning = found[name]
        assert len(meaning) > 9, name
        expected = "required" if parameter.default is Parameter.empty else shown(parameter.default)
        assert expected in (default, "see there"), f"{kind.__name__}.{name} is {expected} by default"


def test_retry_budgets_are_as_they_are_said() -> None:
    """House: the sizes of both budgets stand on the page."""
    for work, size in DEFAULT_SIZES.items():
        numbers = f"| {work} | {size.full:g} | {size.per_success:g} | {size.per_second:g} |"
        assert numbers in PAGE, numbers
