"""The Redis stores keep the contract: on one server, on a cluster, on Valkey, and with the records elsewhere."""

from __future__ import annotations

import pytest

from tests.servers.redis import Cluster, RedisServer
from tests.stores.claims import FEWER_KEYS
from tests.stores.redis_kinds import KINDS, durable_subject, subject
from twicesafe.testing import CHECKS, Outcome, check_store
from twicesafe.testing.check import RESUMES, STATEMENTS, TRANSACTIONS, Check, Need

WITHOUT: set[Need] = {TRANSACTIONS, RESUMES}
"""Redis has none to share. Whatever else is promised has to be kept."""

KIND = pytest.mark.parametrize("kind", KINDS)
CHECK = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


def expected(check: Check, without: set[Need]) -> Outcome:
    """Whether it has to pass."""
    return Outcome.NOT_APPLICABLE if without.intersection(check.needs) else Outcome.PASSED


@KIND
@CHECK
def test_redis_keeps_its_promises(redis_server: RedisServer, kind: str, check: Check) -> None:
    """B1, B4, B5, B6, C1, C4, C6, D1, D2, D4, D6, F6, F8, G1, A3, A4, A7: the contract holds on one server."""
    [result] = check_store(subject(redis_server.url, kind), only=[check.name], keys=FEWER_KEYS)
    assert result.outcome is expected(check, WITHOUT), result.reason


@KIND
@CHECK
def test_a_cluster_keeps_its_promises(redis_cluster: Cluster, kind: str, check: Check) -> None:
    """B1, B4, B5, B6, C1, C4, C6, D1, D2, D4, D6, F6, F8, G1, A3, A4, A7: the contract holds on three servers."""
    [result] = check_store(subject(redis_cluster.url, kind), only=[check.name], keys=FEWER_KEYS)
    assert result.outcome is expected(check, WITHOUT), result.reason


@CHECK
def test_valkey_keeps_its_promises(valkey_server: RedisServer, check: Check) -> None:
    """B1, B4, B5, B6, C1, C4, C6, D1, D2, D4, D6, F6, F8, G1, A3, A4, A7: Valkey is as good."""
    [result] = check_store(subject(valkey_server.url, "async"), only=[check.name], keys=FEWER_KEYS)
    assert result.outcome is expected(check, WITHOUT), result.reason


@CHECK
def test_records_elsewhere_keep_the_promises(redis_server: RedisServer, check: Check) -> None:
    """R12, R14, I1 to I7: Redis before another store keeps what one store alone promises."""
    [result] = check_store(durable_subject(redis_server.url, "async"), only=[check.name], keys=FEWER_KEYS)
    assert result.outcome is expected(check, {*WITHOUT, STATEMENTS}), result.reason
