"""What an operator does about payments whose outcome is held as unknown though nothing of them is.

A store that is away for the third of a second in which an answer is to be recorded, and is back when that has failed,
keeps the outcome as unknown. Whoever asked got the true answer; retries are told that somebody has to find out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from twicesafe.core.keys import derive, scoped_key
from twicesafe.core.record import RecordState, StoredResponse
from twicesafe.core.settling import open_call, reopen, steps_of
from twicesafe.stores.contract import AsyncResumes, AsyncStore
from twicesafe.storm.ledger_downstream import DownstreamLedger
from twicesafe.storm.operation import NAME
from twicesafe.storm.payments import CALL, KEYED_OPERATION


async def settle_unknown(store: AsyncStore, ledger: DownstreamLedger, asked: Iterable[tuple[str, str]]) -> int:
    """How many keyed ones were: those that the ledger knows are completed now, the others released.

    `asked`: accounts with their keys.
    """
    settled = 0
    policy = KEYED_OPERATION.policy
    for account, key in asked:
        digest = scoped_key(account, key).digest
        record = (await store.read(digest)).record
        if record is None or record.state is not RecordState.UNKNOWN:
            continue
        number = await ledger.made(derive(digest, CALL))
        body = json.dumps({"payment": number}).encode()
        response = StoredResponse(201, ((b"content-type", b"application/json"),), body)
        known = response if number is not None else None
        settled += await store.settle(record.ownership, known, policy.key_us, policy.body_us)
    return settled


async def resume_unknown(store: AsyncResumes) -> int:
    """How many resumable ones were: a worker goes on with them behind their last step, as by `twicesafe keys resume`.

    Those with an open call are left to the storm's reconcilers, which ask the provider.
    """
    resumed = 0
    after: object = None
    while True:
        found = await store.outstanding(after)
        for record in found.records:
            if record.operation != NAME or record.state is not RecordState.UNKNOWN:
                continue
            journal = steps_of(record)
            if journal is not None and open_call(journal) is None:
                resumed += await store.reopen(*reopen(record, journal))
        after = found.after
        if after is None:
            return resumed
