"""Updates that name the state they are for, under a key: FastAPI, a version column of SQLAlchemy's, two databases."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Depends, FastAPI, Request, Response
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import NullPool

from tests.servers.postgresql import PostgresqlServer
from twicesafe import RAW, FingerprintRule
from twicesafe.asgi import PUBLIC
from twicesafe.core.preconditions import Precondition, etag, refusal
from twicesafe.errors import PreconditionError
from twicesafe.fastapi import Idempotency
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore
from twicesafe.stores.sqlalchemy_versions import achecked_versions


class Base(DeclarativeBase):
    """The application's tables."""


class Page(Base):
    """Something that several people edit."""

    __tablename__ = "pages"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - as SQLAlchemy has it


class Wiki:
    """One page, version 1, and an application that edits it."""

    def __init__(self, url: str) -> None:
        # Each connection belongs to the loop of its own trial.
        self.engine = create_async_engine(url, poolclass=NullPool)
        self.sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        self.store = AsyncSqlalchemyStore(self.sessions)
        self.app = FastAPI()
        self.runs = 0
        self.read: Callable[[], Any] | None = None
        safe = Idempotency(self.app, self.store, scope=PUBLIC)
        self.app.add_exception_handler(PreconditionError, refused)

        @self.app.put("/pages/{number}")
        @safe.operation(
            effects="transactional",
            methods={"PUT"},
            fingerprint=FingerprintRule(RAW, (b"if-match", b"if-none-match")),
        )
        async def edit(
            number: int,
            text: str,
            response: Response,
            wanted: Annotated[Precondition, Depends(precondition)],
            session: Annotated[AsyncSession, Depends(safe.connection)],
        ) -> dict[str, str]:
            self.runs += 1
            page = await session.get(Page, number)
            wanted.check(None if page is None else page.version)
            if self.read is not None:
                await self.read()
            async with achecked_versions(session):
                if page is None:
                    page = Page(id=number, text=text)
                    session.add(page)
                page.text = text
            response.headers["ETag"] = str(etag(page.version))
            return {"text": page.text}

    async def put(self, text: str, key: str | None, number: int = 1, **headers: str) -> httpx2.Response:
        """One attempt at an edit."""
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            lines["idempotency-key"] = key
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url="http://here") as client:
            return await client.put(f"/pages/{number}", params={"text": text}, headers=lines)

    async def page(self, number: int = 1) -> tuple[str, int] | None:
        """What is there now."""
        async with self.sessions() as session:
            found = await session.scalar(select(Page).where(Page.id == number))
            return None if found is None else (found.text, found.version)


async def precondition(request: Request) -> Precondition:
    """What the request says of the state; asked for before anything is claimed."""
    return Precondition.of(request.headers, required=True)


async def refused(request: Request, error: Exception) -> Response:
    """The answer to a request whose precondition is refused."""
    assert isinstance(error, PreconditionError)
    status, headers, body = refusal(error)
    return Response(body, status, headers)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def url(request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: PostgresqlServer) -> Iterator[str]:
    """A database of the trial's own."""
    if request.param == "SQLite":
        yield f"sqlite+aiosqlite:///{tmp_path}/wiki.db"
    else:
        yield postgresql_server.create_database().replace("postgresql://", "postgresql+asyncpg://")


@asynccontextmanager
async def wiki_at(url: str) -> AsyncIterator[Wiki]:
    """The application, with its page."""
    wiki = Wiki(url)
    await wiki.store.apply_schema()
    async with wiki.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with wiki.sessions() as session:
        session.add(Page(id=1, text="first"))
        await session.commit()
    try:
        yield wiki
    finally:
        await wiki.store.aclose()
        await wiki.engine.dispose()


def test_a_retried_update_gets_its_own_first_answer(url: str) -> None:
    """R31: the update has changed the version itself; its retry is a replay and no 412, and changes nothing more."""

    async def trial() -> None:
        async with wiki_at(url) as wiki:
            first = await wiki.put("second", "k1", if_match='"1"')
            again = await wiki.put("second", "k1", if_match='"1"')
            assert await wiki.page() == ("second", 2)
            assert (wiki.runs, first.status_code, first.headers["etag"]) == (1, 200, '"2"')
            assert (again.status_code, again.headers["etag"], again.content) == (200, '"2"', first.content)
            assert again.headers["idempotent-replayed"] == "true"
            without = await wiki.put("second", None, if_match='"1"')
            assert (without.status_code, await wiki.page()) == (412, ("second", 2))

    asyncio.run(trial())


def test_a_failed_precondition_is_an_answer(url: str) -> None:
    """R15, R31: a 412 is stored: the same request under its key gets it again even once the state would allow it, so
    that nobody's late duplicate does what its caller was told had failed; another precondition is another request."""

    async def trial() -> None:
        async with wiki_at(url) as wiki:
            failed = await wiki.put("theirs", "k1", if_match='"2"')
            assert (failed.status_code, failed.json()["type"]) == (412, "urn:twicesafe:problem:precondition-failed")
            await wiki.put("second", "k2", if_match='"1"')
            late = await wiki.put("theirs", "k1", if_match='"2"')
            assert await wiki.page() == ("second", 2)
            assert (late.status_code, late.headers["idempotent-replayed"], late.content) == (
                412,
                "true",
                failed.content,
            )
            reused = await wiki.put("theirs", "k1", if_match='"1"')
            assert (reused.status_code, await wiki.page()) == (422, ("second", 2))
            mended = await wiki.put("theirs", "k3", if_match='"2"')
            assert (mended.status_code, await wiki.page()) == (200, ("theirs", 3))

    asyncio.run(trial())


def test_without_a_precondition_nothing_is_claimed(url: str) -> None:
    """R31, E1: 428, and 400 for one that cannot be read, come before the claim: the key stays free."""

    async def trial() -> None:
        async with wiki_at(url) as wiki:
            bare = await wiki.put("second", "k1")
            broken = await wiki.put("second", "k1", if_match="1")
            assert (bare.status_code, broken.status_code, wiki.runs) == (428, 400, 0)
            assert (await wiki.put("second", "k1", if_match='"1"')).status_code == 200
            assert await wiki.page() == ("second", 2)

    asyncio.run(trial())


def test_only_one_makes_what_is_not_there_yet(url: str) -> None:
    """R30, R31: If-None-Match: * makes it once; whoever comes second is told that it is there."""

    async def trial() -> None:
        async with wiki_at(url) as wiki:
            made = await wiki.put("new", "k1", 7, if_none_match="*")
            again = await wiki.put("new", "k1", 7, if_none_match="*")
            other = await wiki.put("mine", "k2", 7, if_none_match="*")
            assert await wiki.page(7) == ("new", 1)
            assert (made.status_code, again.status_code, other.status_code) == (200, 200, 412)

    asyncio.run(trial())


def test_of_two_who_read_the_same_version_one_changes_it(postgresql_server: PostgresqlServer) -> None:
    """R31, H2: both have checked, and both write: the second finds another version, is rolled back and told 412, and
    that is what is stored."""

    async def trial() -> None:
        url = postgresql_server.create_database().replace("postgresql://", "postgresql+asyncpg://")
        async with wiki_at(url) as wiki:
            both = asyncio.Barrier(2)
            wiki.read = both.wait
            answers = await asyncio.gather(wiki.put("one", "k1", if_match='"1"'), wiki.put("two", "k2", if_match='"1"'))
            assert sorted(answer.status_code for answer in answers) == [200, 412]
            won = next(answer for answer in answers if answer.status_code == 200)
            assert await wiki.page() == (won.json()["text"], 2)
            again = await asyncio.gather(wiki.put("one", "k1", if_match='"1"'), wiki.put("two", "k2", if_match='"1"'))
            assert [answer.content for answer in again] == [answer.content for answer in answers]
            assert (wiki.runs, await wiki.page()) == (2, (won.json()["text"], 2))

    asyncio.run(trial())
