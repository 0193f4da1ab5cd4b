"""What befalls events on their way to the storm's consumer."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from twicesafe.outbox import Outbox
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.storm.announcing import SUBJECT_HEADER, subject_of
from twicesafe.storm.delivery import Delivery
from twicesafe.storm.plan import Fault, Planned
from twicesafe.storm.proxy import FaultProxy
from twicesafe.storm.settings import Standing


def test_an_event_that_comes_late_meets_what_was_planned_for_it(tmp_path: Path) -> None:
    """R42: on a busy machine all events may be delivered after the last client got its answer; faults await them."""
    file = tmp_path / "storm.db"
    with closing(SqliteStore(file)) as store:
        store.apply_schema()

    async def delivered() -> FaultProxy:
        proxy = FaultProxy(SUBJECT_HEADER)
        nobody = cast("Any", None)
        await proxy.start(nobody)
        delivery = Delivery(f"sqlite:///{file}", nobody, None, proxy, nobody)
        delivery.arm("run", {0: [Planned(Fault.RESET_BEFORE, 0.0)]})
        with closing(sqlite3.connect(file)) as outbox:
            Outbox("/storm").add(outbox, "payment.made", ("account", "a"), {})
            outbox.commit()
            async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
                drained = tasks.create_task(delivery.drained(Standing(1)))
                await asyncio.sleep(0)  # it has begun to wait
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.write(f"POST / HTTP/1.1\r\n{SUBJECT_HEADER}: {subject_of('run', 0)}\r\n\r\n".encode())
                with pytest.raises(ConnectionResetError):
                    await reader.read()
                writer.close()
                outbox.execute("UPDATE twicesafe_outbox SET state = 'delivered'")
                outbox.commit()
        assert drained.result() == 0
        await proxy.close()
        return proxy

    assert asyncio.run(delivered()).faults == {Fault.RESET_BEFORE: 1}
