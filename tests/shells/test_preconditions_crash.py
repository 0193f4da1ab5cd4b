"""Conditional updates whose first attempt broke off after the change: the handler that runs again meets itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.shells.probe import Reply, post
from tests.shells.rig import Rig
from twicesafe import Effects, Policy
from twicesafe.asgi import current
from twicesafe.core.preconditions import Precondition, etag, refusal
from twicesafe.errors import PreconditionError


class Page:
    """A row, and a handler that changes it. `breaks` is what the first attempt raises once it has."""

    def __init__(self, *, signed: bool, breaks: BaseException | None) -> None:
        self.version = 1
        self.made_by = ""
        self._signed = signed
        self._breaks = breaks

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            status, headers, body = 204, {"ETag": str(etag(self.change(scope)))}, b""
        except PreconditionError as error:
            status, refused, body = refusal(error)
            headers = dict(refused)
        if self._breaks is not None:
            error, self._breaks = self._breaks, None
            raise error
        lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": body})

    def change(self, scope: Any) -> int:
        """As the page on preconditions has it, where it is `signed`: first, whether this intent made what is there."""
        me = current(scope).derived_key("edit")
        if not (self._signed and self.made_by == me):
            Precondition.of(scope["headers"], required=True).check(self.version)
            self.version, self.made_by = self.version + 1, me
        return self.version


async def edit(rig: Rig, key: str = "k-0001-0001-0001", version: int = 1) -> Reply:
    """An attempt to change this version; what breaks off reaches the server."""
    how = {"method": "PUT", "key": key, "headers": [(b"if-match", b'"%d"' % version)]}
    return await post(rig.safe, **how, raises=RuntimeError)


def rig_of(page: Page, effects: Effects) -> Rig:
    return Rig(Policy(effects=effects, methods=frozenset({"PUT"}), unknown_on_error=True), app=page)


def test_work_that_is_run_again_knows_its_own_change() -> None:
    """R13, R31, I6: where the row says which intent made it, the attempt that runs again reports the success and
    changes nothing more; somebody else with the old version is told 412."""

    async def trial() -> None:
        page = Page(signed=True, breaks=RuntimeError("after the change"))
        rig = rig_of(page, Effects.KEYED)
        assert (await edit(rig)).raised is not None
        rig.pass_time(timedelta(microseconds=1))
        again, replay = await edit(rig), await edit(rig)
        assert page.version == 2
        assert (again.status, again.header(b"etag"), replay.replayed) == (204, b'"2"', True)
        assert (await edit(rig, "k-0002-0002-0002")).status == 412

    asyncio.run(trial())


def test_without_that_it_takes_itself_for_somebody_else() -> None:
    """R31: which is why the page says to keep it: the change is made once all the same, and reported as a failure."""

    async def trial() -> None:
        page = Page(signed=False, breaks=RuntimeError("after the change"))
        rig = rig_of(page, Effects.KEYED)
        await edit(rig)
        rig.pass_time(timedelta(microseconds=1))
        assert ((await edit(rig)).status, page.version) == (412, 2)

    asyncio.run(trial())


@pytest.mark.parametrize("signed", [False, True])
def test_opaque_work_never_meets_itself(signed: bool) -> None:
    """R13, I6: it is not run again; its outcome is unknown, and nobody is told that it failed."""

    async def trial() -> None:
        page = Page(signed=signed, breaks=RuntimeError("after the change"))
        rig = rig_of(page, Effects.OPAQUE)
        await edit(rig)
        again = await edit(rig)
        assert (again.status, again.kind, page.version) == (409, "outcome-unknown", 2)

    asyncio.run(trial())
