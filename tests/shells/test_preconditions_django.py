"""The page about preconditions on Django: its code, run as it stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connections, models
from django.urls import path as url

from tests.house.sources import ROOT
from tests.servers.postgresql import PostgresqlServer
from tests.shells import django_site
from tests.shells.django_site import OURS, Site

PAGE = (ROOT / "docs" / "preconditions.md").read_text(encoding="utf-8")


class Page(models.Model):
    """Something that several people edit."""

    text = models.TextField()
    version = models.IntegerField()

    class Meta:
        app_label = "wiki"


def code(alias: str) -> dict[str, Any]:
    """What the page's block for Django defines, with the models of this database."""
    (block,) = re.findall(r"^```py\n(.+?)^```", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"Page": SimpleNamespace(objects=Page.objects.using(alias)), "__name__": __name__}
    exec(compile(block, "docs/preconditions.md", "exec", dont_inherit=True), names)
    return names


def preconditions(get_response: Any) -> Any:
    """The page's middleware."""
    return code("default")["Preconditions"](get_response)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def site(request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: PostgresqlServer) -> Iterator[Site]:
    """A site with a database of its own."""
    on_file = request.param == "SQLite"
    made = django_site.on_file(tmp_path) if on_file else django_site.on_postgresql(postgresql_server)
    yield made
    made.close()


def test_an_update_on_django(site: Site) -> None:
    """R31, R30: a retried update gets its own first answer; one for another version is 412 and stored; one for none is
    428; nothing else is changed."""
    edit = code(site.alias)["edit"]
    with connections[site.alias].schema_editor() as editor:
        editor.create_model(Page)
    pages = Page.objects.using(site.alias)
    pages.create(pk=1, text="first", version=1)
    middleware = [*site.middleware[:-1], f"{__name__}.preconditions", OURS]
    with site.serving(url("pages/<int:number>", edit), MIDDLEWARE=middleware):

        def put(key: str, body: bytes, **headers: str) -> Any:
            return site.post("/pages/1", body, method="put", key=key, headers=headers)

        first, again = (put("k1", b"second", **{"If-Match": '"1"'}) for _ in range(2))
        assert pages.get().version == 2
        assert (first.status_code, again.status_code, again["ETag"]) == (204, 204, '"2"')
        assert again["Idempotent-Replayed"] == "true"
        late, stored = (put("k2", b"third", **{"If-Match": '"1"'}) for _ in range(2))
        assert (late.status_code, stored.status_code, stored["Idempotent-Replayed"]) == (412, 412, "true")
        assert put("k3", b"third").status_code == 428
        assert (pages.get().text, pages.get().version) == ("second", 2)
