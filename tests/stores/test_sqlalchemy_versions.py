"""Version columns of SQLAlchemy's mappers: who was too late is told so, and the session goes on."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.exc import StaleDataError

from twicesafe.errors import PreconditionFailedError
from twicesafe.stores.sqlalchemy_versions import achecked_versions, checked_versions

SOMEBODY_ELSE = text("UPDATE pages SET version = version + 1 WHERE id = 1")


class Base(DeclarativeBase):
    """The application's tables."""


class Page(Base):
    """A row with a version."""

    __tablename__ = "pages"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - as SQLAlchemy has it


def test_a_stale_object_is_a_failed_precondition() -> None:
    """R31, H2: the change is undone and nothing else of the transaction, which can still be committed."""
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all([Page(id=1, text="first"), Page(id=2, text="other")])
        session.flush()
        page = session.get_one(Page, 1)
        with checked_versions(session):
            page.text = "second"
        assert page.version == 2
        session.execute(SOMEBODY_ELSE)
        with pytest.raises(PreconditionFailedError) as failed, checked_versions(session):
            page.text = "lost"
        assert isinstance(failed.value.__cause__, StaleDataError)
        assert page.text == "second"
        session.execute(SOMEBODY_ELSE)
        with pytest.raises(PreconditionFailedError), checked_versions(session):
            session.delete(page)
    with Session(engine) as session:
        assert session.execute(select(Page.text, Page.version).order_by(Page.id)).all() == [("second", 4), ("other", 1)]
    engine.dispose()


def test_a_stale_object_of_an_asynchronous_session() -> None:
    """R31: the same under asyncio."""

    async def trial() -> None:
        engine = create_async_engine("sqlite+aiosqlite://")
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine, expire_on_commit=False) as session, session.begin():
            page = Page(id=1, text="first")
            async with achecked_versions(session):
                session.add(page)
            await session.execute(SOMEBODY_ELSE)
            with pytest.raises(PreconditionFailedError):
                async with achecked_versions(session):
                    page.text = "lost"
        async with AsyncSession(engine) as session:
            assert (await session.execute(select(Page.text, Page.version))).all() == [("first", 2)]
        await engine.dispose()

    asyncio.run(trial())


def test_other_errors_are_left_as_they_are() -> None:
    """R31: what is no matter of versions is not taken for one."""
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        with pytest.raises(IntegrityError), checked_versions(session):
            session.add_all([Page(id=1, text="undone"), Page(id=1, text="undone")])
        assert session.scalars(select(Page)).all() == []
    engine.dispose()
