"""A Redis store that was used before a fork."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

from tests.servers.redis import RedisServer
from tests.stores.claims import wish
from tests.stores.redis_kinds import new_prefix
from twicesafe.core.claims import Claimed
from twicesafe.stores.redis import RedisStore


def test_a_fork_takes_no_connection_along(redis_server: RedisServer) -> None:
    """I7, C8: the child asks and waits over connections of its own; over its parent's each would read the other's
    answers."""
    name = f"fork-{os.getpid()}"
    store = RedisStore(f"{redis_server.url}?client_name={name}", prefix=new_prefix())
    claimed = store.claim(wish())
    assert isinstance(claimed, Claimed)

    def connections() -> int:
        """As many as the server knows of, once this process has asked and waited."""
        store.settled(claimed.ownership.digest, 20_000)
        with redis_server.client() as client:
            return sum(1 for one in client.client_list() if one["name"] == name)

    alone = connections()
    assert alone == in_a_child(lambda: connections() - alone) == 2
    assert connections() == alone
    store.close()


def in_a_child(work: Callable[[], int]) -> int:
    """What `work` says in a forked process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the listening thread is known not to come along
        child = os.fork()
    if child == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
