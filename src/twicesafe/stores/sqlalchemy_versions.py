"""Version columns of SQLAlchemy's mappers as preconditions (R31).

A mapper with `version_id_col` makes every UPDATE and DELETE conditional on the version that was read, and raises
StaleDataError where somebody else was quicker. For HTTP that is 412: the state that the change was made for is not the
current one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from twicesafe.errors import PreconditionFailedError

__all__ = ["achecked_versions", "checked_versions"]


@contextmanager
def checked_versions(session: Session) -> Iterator[None]:
    """Around changes, written at its end. PreconditionFailedError where an object is of another version by now.

        with checked_versions(session):
            page.text = text

    The changes are a savepoint, which is all that is rolled back then: a flush that fails outside of one rolls back the
    session's whole transaction, and no answer could be recorded in it.
    """
    try:
        with session.begin_nested():
            yield
    except StaleDataError as stale:
        raise _failed() from stale


@asynccontextmanager
async def achecked_versions(session: AsyncSession) -> AsyncIterator[None]:
    """`checked_versions` of an AsyncSession."""
    try:
        async with session.begin_nested():
            yield
    except StaleDataError as stale:
        raise _failed() from stale


def _failed() -> PreconditionFailedError:
    return PreconditionFailedError("the state that this change was made for is not the current one")
