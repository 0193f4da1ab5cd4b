"""A FastAPI route whose effects are in DynamoDB: what is stored is what was committed."""

from typing import Annotated, Any

import pytest
from fastapi import Depends, HTTPException

from tests.servers.dynamodb import DynamodbServer, Fault
from tests.shells.service import Service, Work, run
from tests.stores.dynamodb_place import Place, new_place, opened

TOO_MUCH = b'{"amount": 2}'


@pytest.fixture
def place(dynamodb_server: DynamodbServer) -> Place:
    return new_place(dynamodb_server, "dynamodb, async")


def charging(place: Place, store: Any) -> Service:
    """`POST /jobs` puts an item, unless the amount is too much, and then changes its mind."""
    served = Service(store)

    @served.app.post("/jobs", status_code=201)
    @served.safe.operation(effects="transactional")
    async def work(body: Work, db: Annotated[Any, Depends(served.safe.connection)]) -> dict[str, int]:
        place.write(db)
        if body.amount > 1:
            raise HTTPException(409, "too much")
        return {"amount": body.amount}

    return served


@pytest.mark.parametrize("fault", [None, Fault.LOST_ANSWER])
def test_effect_and_answer_commit_together(place, dynamodb_faults, fault):
    """R23, I11, B6: one item however often it is asked for, also where the answer to the commit was lost."""

    async def trial():
        async with opened(place) as store:
            served = charging(place, store)
            if fault is not None:
                dynamodb_faults.append(("TransactWriteItems", fault))
            first = await served.post()
            assert place.effects() == 1
            again = await served.post()
            assert place.effects() == 1
            assert (first.status, again.status, again.replayed) == (201, 201, True)
            assert again.body == first.body

    run(trial())


def test_a_failure_is_kept_and_its_effects_are_not(place, dynamodb_faults):
    """H2, R15: a 409 is the answer to every retry, and nothing that was collected before it is written."""

    async def trial():
        async with opened(place) as store:
            served = charging(place, store)
            first, again = await served.post(body=TOO_MUCH), await served.post(body=TOO_MUCH)
            assert place.effects() == 0
            assert (first.status, again.status, again.replayed) == (409, 409, True)

    run(trial())


def test_a_commit_that_never_arrives_can_be_asked_for_again(place, dynamodb_faults):
    """R14, R23: nothing was done and the caller is told to ask again; the retry does it once."""

    async def trial():
        async with opened(place) as store:
            served = charging(place, store)
            dynamodb_faults.extend([("TransactWriteItems", Fault.LOST_REQUEST)] * 4)
            first = await served.post()
            assert (first.status, place.effects()) == (503, 0)
            again = await served.post()
            assert (again.status, again.replayed, place.effects()) == (201, False, 1)

    run(trial())
