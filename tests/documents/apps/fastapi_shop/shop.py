"""An application that was there before: FastAPI, SQLAlchemy, sessions as a dependency."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Header, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

USERS = {"Bearer ada-1": "ada", "Bearer ada-2": "ada", "Bearer bob-1": "bob"}


class Base(DeclarativeBase):
    pass


class Charge(Base):
    __tablename__ = "charges"

    id: Mapped[int] = mapped_column(primary_key=True)
    user: Mapped[str]
    cents: Mapped[int]


engine = create_async_engine("sqlite+aiosqlite:///shop.db")
Sessions = async_sessionmaker(engine, expire_on_commit=False)


async def get_session() -> AsyncIterator[AsyncSession]:
    async with Sessions() as session:
        yield session


async def current_user(authorization: Annotated[str, Header()] = "") -> str:
    if authorization not in USERS:
        raise HTTPException(401)
    return USERS[authorization]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/charges", status_code=201)
async def create_charge(
    cents: Annotated[int, Body(embed=True)],
    user: Annotated[str, Depends(current_user)],
    db: Annotated[AsyncSession, Depends(get_session)],
) -> dict[str, int]:
    charge = Charge(user=user, cents=cents)
    db.add(charge)
    await db.commit()
    return {"charge": charge.id}
