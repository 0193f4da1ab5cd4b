"""What users may import. `python -m tests.house.public_api` writes the list anew; its diff is then reviewed."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.house.sources import modules

LIST = Path(__file__).with_name("public_api.txt")

PUBLIC = (
    "twicesafe",
    "twicesafe.asgi",
    "twicesafe.client",
    "twicesafe.client.audit",
    "twicesafe.client.aiohttp",
    "twicesafe.client.callers",
    "twicesafe.client.calls",
    "twicesafe.client.httpx",
    "twicesafe.client.opentelemetry",
    "twicesafe.client.requests",
    "twicesafe.core.preconditions",
    "twicesafe.cors",
    "twicesafe.dashboard",
    "twicesafe.demo.provider.fake",
    "twicesafe.django",
    "twicesafe.doctor",
    "twicesafe.errors",
    "twicesafe.falcon",
    "twicesafe.fastapi",
    "twicesafe.flask",
    "twicesafe.gateway",
    "twicesafe.inbox",
    "twicesafe.litestar",
    "twicesafe.lookup",
    "twicesafe.observe",
    "twicesafe.once",
    "twicesafe.opentelemetry",
    "twicesafe.outbox",
    "twicesafe.outbox.operators",
    "twicesafe.outbox.relay",
    "twicesafe.publishers.kafka",
    "twicesafe.publishers.nats",
    "twicesafe.publishers.rabbitmq",
    "twicesafe.publishers.redis_streams",
    "twicesafe.publishers.webhooks",
    "twicesafe.pytest_plugin",
    "twicesafe.quart",
    "twicesafe.reaper",
    "twicesafe.receiving",
    "twicesafe.reconcile",
    "twicesafe.starlette",
    "twicesafe.stores.asyncmy",
    "twicesafe.stores.asyncpg",
    "twicesafe.stores.contract",
    "twicesafe.stores.cryptography",
    "twicesafe.stores.django",
    "twicesafe.stores.dynamodb",
    "twicesafe.stores.dynamodb_async",
    "twicesafe.stores.memory",
    "twicesafe.stores.psycopg",
    "twicesafe.stores.pymysql",
    "twicesafe.stores.redis",
    "twicesafe.stores.sealed",
    "twicesafe.stores.sqlalchemy",
    "twicesafe.stores.sqlalchemy_versions",
    "twicesafe.stores.sqlite",
    "twicesafe.structlog",
    "twicesafe.testing",
    "twicesafe.testing.client",
    "twicesafe.worker",
    "twicesafe.wsgi",
)
"""Modules whose names are promises. The rest is how it is done, and may change."""

HEAD = """\
# Every name that users may import. A line that goes is a breaking change; a line that comes is a promise.
# Written by: python -m tests.house.public_api
"""


def names_of(module: str) -> list[str]:
    """What a module offers: its `__all__`, or else the public names it defines itself."""
    tree = modules()[module]
    defined: list[str] = []
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                defined.append(node.name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                defined.append(name)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return sorted(ast.literal_eval(value))
            case ast.Assign(targets=targets):
                defined += [target.id for target in targets if isinstance(target, ast.Name)]
            case _:
                pass
    return sorted(name for name in defined if not name.startswith("_"))


def listing() -> str:
    """The list as it should stand."""
    return HEAD + "".join(f"{module}.{name}\n" for module in PUBLIC for name in names_of(module))


if __name__ == "__main__":
    LIST.write_text(listing(), encoding="utf-8")
