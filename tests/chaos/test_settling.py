"""What the lab's operator does about keyed payments that are held as unknown."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from secrets import token_bytes

from tests.stores.claims import wish
from twicesafe.core.claims import Claimed
from twicesafe.core.journal import CALL as CALLED
from twicesafe.core.journal import DONE, OPEN, PHASE, Entry, Journal
from twicesafe.core.keys import derive, scoped_key
from twicesafe.core.record import Effects, RecordState
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.storm.chaos.settling import resume_unknown, settle_unknown
from twicesafe.storm.ledger import Payment
from twicesafe.storm.ledger_downstream import DownstreamLedger
from twicesafe.storm.operation import NAME
from twicesafe.storm.payments import CALL

ASKED = [("account", f"key-of-a-payment-{number}") for number in range(4)]
PAID, UNPAID, RUNNING, NEVER = (scoped_key(account, key).digest for account, key in ASKED)


def test_whoever_was_called_knows(tmp_path: Path) -> None:
    """I6, R26: what is unknown is completed with the payment that the ledger made under the derived key, or released
    where it made none; what runs is left alone, and nothing is paid."""

    async def trial() -> None:
        store = AsyncMemoryStore()
        ledger = DownstreamLedger(tmp_path / "ledger.db")
        await ledger.create()
        for digest in (PAID, UNPAID, RUNNING):
            found = await store.claim(wish(digest=digest, owner=token_bytes(16)))
            assert isinstance(found, Claimed)
            if digest is not RUNNING:
                await store.hold(found.ownership)
        made = await ledger.pay(derive(PAID, CALL), "first", Payment("run", 0, "account", "10.00"))
        assert await settle_unknown(store, ledger, ASKED) == 2
        assert await ledger.payments("run") == {0: [made]}
        paid, unpaid, running, never = [(await store.read(one)).record for one in (PAID, UNPAID, RUNNING, NEVER)]
        assert paid is not None and paid.state is RecordState.COMPLETED
        assert paid.response is not None and paid.response.status == 201
        assert json.loads(paid.response.body or b"") == {"payment": made}
        assert unpaid is None
        assert running is not None and running.state is RecordState.CLAIMED
        assert never is None
        assert await settle_unknown(store, ledger, ASKED) == 0

    asyncio.run(trial())


def test_what_only_lacks_its_record_goes_on_behind_its_last_step() -> None:
    """I6, I10, R26: an operation that was held with no call open is a worker's again, and keeps its steps; one with an
    open call stays held until the provider was asked."""

    async def trial() -> None:
        store = AsyncMemoryStore()
        for digest, entry in ((PAID, Entry("close", PHASE, DONE)), (UNPAID, Entry("fee", CALLED, OPEN))):
            claim = wish(digest=digest, owner=token_bytes(16), effects=Effects.RESUMABLE, operation=NAME, request=b"-")
            found = await store.claim(claim)
            assert isinstance(found, Claimed)
            point, line = Journal().move(entry)
            await store.advance(found.ownership, None, point, line)
            await store.hold(found.ownership)
        assert await resume_unknown(store) == 1
        paid, unpaid = [(await store.read(one)).record for one in (PAID, UNPAID)]
        assert paid is not None and paid.state is RecordState.CLAIMED
        assert paid.recovery_point == "1 done close"
        assert unpaid is not None and unpaid.state is RecordState.UNKNOWN
        assert [one.digest for one in (await store.outstanding()).records if one.state is RecordState.CLAIMED] == [PAID]

    asyncio.run(trial())
