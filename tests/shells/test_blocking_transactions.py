"""The blocking driver and transactions: effect and answer are kept together, or neither is."""

from __future__ import annotations

import pytest

from tests.shells.blocking_rig import LINES, REPLAYED, BlockingRig, sent
from twicesafe.core.policy import Policy
from twicesafe.stores.sqlite import SqliteStore


@pytest.fixture
def transactional(tmp_path):
    """A rig on a SQLite store with a table of the application's own."""
    store = SqliteStore(tmp_path / "records.db")
    store.apply_schema()
    with store.transaction() as transaction:
        transaction.begin()
        transaction.connection.execute("CREATE TABLE ledger (id INTEGER PRIMARY KEY)")
        transaction.commit()
    yield BlockingRig(Policy(effects="transactional", commits=frozenset({402})), store)
    store.close()


def rows(rig) -> int:
    with rig.store.transaction() as transaction:
        transaction.begin()
        return int(transaction.connection.execute("SELECT count(*) FROM ledger").fetchone()[0])


def insert(request) -> None:
    request.connection.execute("INSERT INTO ledger DEFAULT VALUES")


@pytest.mark.parametrize(
    ("status", "kept", "replayed"), [(201, 1, True), (402, 1, True), (409, 0, True), (503, 0, False)]
)
@pytest.mark.parametrize("plain", [True, False])
def test_effect_and_answer_are_one_transaction(transactional, status, kept, replayed, plain):
    """R23, H2: an answer below 400 is recorded with its effect, a failure without; a released one leaves neither."""
    lines = ((b"content-length", b"4"),) if plain else ()
    transactional.ask(status=status, headers=lines, handler=insert)
    assert rows(transactional) == kept
    again = transactional.ask(status=status, headers=lines)
    assert (again.status, REPLAYED in again.headers) == (status, replayed)
    assert rows(transactional) == kept


@pytest.mark.parametrize("error", [RuntimeError(), SystemExit(1)])
def test_an_exception_rolls_back_and_frees_the_key(transactional, error):
    """R16, B5: nothing was done, so the next attempt runs."""
    with pytest.raises(type(error)):
        transactional.ask(error=error, handler=insert)
    assert rows(transactional) == 0
    assert transactional.ask(handler=insert).status == 201
    assert rows(transactional) == 1


def test_a_transaction_commits_before_the_first_byte_of_a_stream(transactional):
    """I11, R23: held back up to the limit, a stream of unknown length is committed whole, then given."""
    first = transactional.ask(lambda: iter([b"a", b"b"]), handler=insert)
    assert rows(transactional) == 1
    assert (first.pieces, sent(first)) == ([b"ab"], b"ab")
    assert sent(transactional.ask()) == b"ab"


def test_without_a_key_a_transaction_is_kept_or_rolled_back_all_the_same(transactional):
    """R3, R23: by the rule that holds under a key; nothing is recorded, and the connection ends with the request."""
    for status, kept in ((201, 1), (409, 1), (503, 1), (402, 2)):
        request = transactional.request("")
        assert request.enter_without_key() is None
        insert(request)
        assert request.answered(status, LINES, [b"x"]).headers == LINES
        assert rows(transactional) == kept
        with pytest.raises(LookupError):
            _ = request.connection
    request = transactional.request("")
    request.enter_without_key()
    insert(request)
    with pytest.raises(RuntimeError):
        request.raised(RuntimeError())
    assert rows(transactional) == 2
