"""The app of Django's: migrations, checks, settings and the admin, each in a process of a project's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from psycopg.conninfo import conninfo_to_dict

from tests.shells import django_site
from twicesafe import Effects, Operation, Policy
from twicesafe.django import checks, configuration, contract
from twicesafe.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
OURS = django_site.OURS
LEASED = "memory:"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path) -> Run:
    def running(*command: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.shells.django_project.settings",
            "PROJECT": json.dumps(settings),
            "PROJECT_FILE": str(tmp_path / "project.db"),
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.run(
            [sys.executable, "-W", "error", *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return running


SET_UP = """
import json, shlex
import django
from django.core.management import call_command
django.setup()
from twicesafe.stores.django import DjangoStore
store = DjangoStore()
def manage(*commands):
    for command in commands:
        call_command(*shlex.split(command))
"""


def test_migrate_makes_the_tables_of_the_store(run: Run, postgresql_server) -> None:
    """R20, R23: on SQLite and on PostgreSQL, by the statements of `twicesafe schema`; no model asks for another."""
    parts = conninfo_to_dict(postgresql_server.create_database())
    postgresql = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
        "PORT": parts["port"],
    }
    for settings in ({}, {"DATABASES": {"default": postgresql}}):
        ran = run("-c", SET_UP + MIGRATE, **settings)
        assert ran.returncode == 0, ran.stderr
        assert "No changes detected" in ran.stdout
        assert "CREATE TABLE twicesafe_records" in ran.stdout
        assert ran.stdout.endswith("as the store wants them\n")


MIGRATE = """
manage("check --fail-level WARNING", "migrate -v0", "makemigrations --check --dry-run", "sqlmigrate twicesafe 0001")
store.check_schema()
store.apply_schema()
print("as the store wants them")
"""


def test_migrate_keeps_tables_that_are_there(run: Run) -> None:
    """R20: tables that `twicesafe schema apply` made are taken as they are; going back drops them."""
    code = 'manage("migrate -v0", "migrate -v0 twicesafe zero", "migrate -v0")'
    ran = run("-c", f"{SET_UP}store.apply_schema()\n{code}\nstore.check_schema()")
    assert ran.returncode == 0, ran.stderr


ORDER = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.common.CommonMiddleware",
]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"MIDDLEWARE": [*ORDER, OURS]}, []),
        ({"MIDDLEWARE": [*ORDER[:2], OURS, ORDER[2]]}, []),
        ({"MIDDLEWARE": [ORDER[0], OURS, *ORDER[1:]]}, ["twicesafe.E002"]),
        ({"MIDDLEWARE": [OURS, *ORDER]}, ["twicesafe.E002"] * 2),
        ({"MIDDLEWARE": [*ORDER, OURS, OURS]}, ["twicesafe.E003"]),
        ({"MIDDLEWARE": ORDER}, ["twicesafe.W001"]),
        ({"TWICESAFE": {"STORE": "default"}}, ["twicesafe.E001"]),
        ({"TWICESAFE": {"SCOPE": "twicesafe.PUBLIC", "STORE": "memory"}}, ["twicesafe.E001"]),
        ({"TWICESAFE": {"SCOPE": "twicesafe.PUBLIC", "STORE": LEASED}}, ["twicesafe.E004"]),
    ],
)
def test_check_finds_what_is_wrong(changes: Any, found: list[str]) -> None:
    """E1, R13: the middleware before authentication is an error, and so is whatever could protect nothing."""
    standing = {"MIDDLEWARE": [*ORDER, OURS], "TWICESAFE": {"SCOPE": "twicesafe.PUBLIC"}, **changes}
    with override_settings(**standing):
        contract.known["checked"] = Operation("checked", Policy(effects=Effects.TRANSACTIONAL))
        said = [*checks.check_settings(), *checks.check_middleware(), *checks.check_operations()]
        contract.known.clear()
    assert [each.id for each in said] == found


SCOPE = {"SCOPE": "twicesafe.PUBLIC"}


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (None, "settings.TWICESAFE is missing"),
        (["SCOPE"], "must be a dict"),
        ({}, '["SCOPE"] is missing'),
        ({"SCOPE": "nowhere.user_id"}, '["SCOPE"] names'),
        ({"SCOPE": 7}, '["SCOPE"] must be'),
        ({**SCOPE, "SCOPES": 1}, "has no 'SCOPES'"),
        ({**SCOPE, "STORE": "archive"}, '["STORE"] cannot be used'),
        ({**SCOPE, "STORE": "nothing://here"}, '["STORE"] cannot be used'),
        ({**SCOPE, "STORE": "twicesafe.stores.memory.AsyncMemoryStore"}, "must be a blocking store"),
        ({**SCOPE, "STORE": "twicesafe.Policy"}, '["STORE"] must be a database alias'),
        ({**SCOPE, "POLICY": {"leases": 1}}, '["POLICY"] is refused'),
        ({**SCOPE, "POLICY": {"effects": "none"}}, '["POLICY"] is refused'),
        ({**SCOPE, "POLICY": 7}, '["POLICY"] must be'),
        ({**SCOPE, "EVERY_VIEW": "yes"}, '["EVERY_VIEW"] must be'),
        ({**SCOPE, "OBSERVER": "twicesafe.__version__"}, '["OBSERVER"] must be'),
    ],
)
def test_a_wrong_setting_is_named(said: Any, named: str) -> None:
    """R6: ConfigurationError and ImproperlyConfigured in one, where the setting is read."""
    with override_settings(TWICESAFE=said), pytest.raises(ImproperlyConfigured) as met:
        configuration.configured()
    assert isinstance(met.value, ConfigurationError)
    assert named in str(met.value)


ADMIN = """
manage("migrate -v0")
from django.contrib.auth.models import User
from django.test import Client
user = User.objects.create_superuser("ann", "a@example.org", "pw")
client = Client()
client.force_login(user)
key = "key-of-at-least-16-characters"
first, again = [client.post("/jobs", b"{}", content_type="application/json", headers={"Idempotency-Key": key})
                for _ in range(2)]
assert again.headers["idempotent-replayed"] == "true", again.headers
from twicesafe.django.models import Record
record = Record.objects.get()
places = ["/admin/twicesafe/record/", f"/admin/twicesafe/record/{record.pk}/change/",
          f"/admin/twicesafe/record/?q={user.pk}", "/admin/twicesafe/record/?o=-6&state__exact=completed"]
pages = [client.get(place) for place in places]
writes = [client.post(f"/admin/twicesafe/record/{record.pk}/change/", {"state": "unknown"}),
          client.post(f"/admin/twicesafe/record/{record.pk}/delete/", {"post": "yes"}),
          client.post("/admin/twicesafe/record/add/", {})]
print(json.dumps({"pages": [[page.status_code, page.content.decode()] for page in pages], "key": key,
                  "writes": [write.status_code for write in writes], "left": Record.objects.count(),
                  "state": Record.objects.get().state, "pk": record.pk}))
"""


def test_the_admin_shows_records_and_nothing_of_what_they_keep(run: Run) -> None:
    """R22, I5: operation, scope, hint and times; neither key nor answer; and nobody changes a record there."""
    ran = run("-c", SET_UP + ADMIN)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert [status for status, _ in seen["pages"]] == [200] * 4
    for _, page in seen["pages"]:
        assert "tests.shells.django_project.urls.work" in page
        assert "…ters" in page and "completed" in page
        assert seen["key"] not in page and "swordfish" not in page
    assert seen["writes"] == [403] * 3
    assert (seen["left"], seen["state"], len(seen["pk"])) == (1, "completed", 64)
