"""Messages that could not be delivered, on the dashboard: shown without what they say, retried and discarded."""

from __future__ import annotations

from urllib.parse import quote

from tests.dashboard.place import Place
from tests.dashboard.visitor import Caller
from twicesafe.core.delivery import MessageState
from twicesafe.dashboard.reading import in_transaction
from twicesafe.outbox import Outbox
from twicesafe.outbox.operators import Messages
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Statement, Steps

PARKED = """UPDATE twicesafe_outbox
SET state = 'parked', attempts = 8, next_at = 9223372036854775807, last_error = 'gone away'"""


def parked(shop: Place) -> list[str]:
    """Two dead letters; their ids."""

    def park(_: Queries) -> Steps[None]:
        yield Statement("park", PARKED, (), writes=True, returns=False)

    outbox = Outbox(source="shop")
    with shop.store.transaction() as transaction:
        transaction.begin()
        for number in range(2):
            name = f"o/{number} ?#"
            outbox.add(transaction.connection, "order.placed", ("order", name), {"secret": "s3"}, id=name)
        transaction.commit()
    in_transaction(shop.store, park)
    return [one.id for one in Messages(shop.store).listed(MessageState.PARKED)]


def test_a_dead_letter_is_retried_and_another_given_up(shop: Place) -> None:
    """R26: what was parked is seen with why, tried again or given up with a reason, in somebody's name, once."""
    ids = parked(shop)
    one, other = (quote(each) for each in ids)
    caller = Caller(shop.url)
    caller.sign_in()
    assert "dead letters" in caller.get("/")[2]
    listed = caller.get("/messages")[2]
    assert listed.count("gone away") == 2 and "s3" not in listed
    page = caller.get(f"/messages/{one}")[2]
    assert "Tried 8 times" in page and "s3" not in page
    assert caller.post(f"/messages/{one}/retry", why="")[0] == 409
    assert caller.post(f"/messages/{one}/retry", why="it is back") == (303, f"/dashboard/messages/{one}?done=retried")
    caller.get(f"/messages/{other}")
    proof = caller.proof()
    assert caller.post(f"/messages/{other}/discard", proof, why="a test")[0] == 303
    messages = Messages(shop.store)
    assert [messages.find(each).state for each in ids] == ["pending", "discarded"]
    assert caller.post(f"/messages/{other}/retry", proof, why="after all")[0] == 409
    trail = [(entry.who, entry.action, entry.why, entry.outcome) for entry in messages.trail(ids[0])]
    assert trail == [("ann", "retry the message", "it is back", "done")]
    assert messages.trail(ids[1])[-1].outcome == "refused"
    assert "ann: discard the message" in caller.get(f"/messages/{other}")[2]
    assert caller.get("/messages/no-such-message")[0] == 404
