"""The examples of docs/frameworks/ for Django: written to the files that they name, and run under real servers."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"

AROUND = {
    "shop/__init__.py": "",
    "shop/models.py": """
from django.conf import settings
from django.db import models

class Charge(models.Model):
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    cents = models.IntegerField()
""",
    "shop/wsgi.py": "from django.core.wsgi import get_wsgi_application\napplication = get_wsgi_application()\n",
    "shop/asgi.py": "from django.core.asgi import get_asgi_application\napplication = get_asgi_application()\n",
    "prepare.py": """
import django
from django.core.management import call_command
django.setup()
call_command("check", fail_level="WARNING")
call_command("migrate", run_syncdb=True, verbosity=0)
from django.contrib.auth.models import User
from django.test import Client
client = Client()
client.force_login(User.objects.create_user("ann", password="pw"))
print(client.cookies["sessionid"].value)
""",
}
"""What a user has already."""

SETTINGS = (
    "from tests.shells.django_project.settings import *\n"
    'INSTALLED_APPS = [app for app in INSTALLED_APPS if app != "twicesafe.django"] + ["shop"]\n'
    "MIDDLEWARE = MIDDLEWARE[:-1]\n"
    'ROOT_URLCONF = "shop.urls"\n'
)

URLS = {
    "django": """
from django.urls import path
from shop.views import charge
urlpatterns = [path("charges/", charge)]
""",
    "drf": """
from rest_framework.routers import DefaultRouter
from shop import more
from shop.views import ChargeViewSet
router = DefaultRouter()
router.register("charges", ChargeViewSet)
urlpatterns = router.urls
""",
    "ninja": """
from django.urls import path
from shop.api import api
urlpatterns = [path("", api.urls)]
""",
}
SERVERS = {
    "django": "uvicorn shop.asgi:application --host 127.0.0.1 --port {port} --log-level warning",
    "drf": "gunicorn shop.wsgi -k gthread -b 127.0.0.1:{port} --log-level warning",
    "ninja": "uvicorn shop.asgi:application --host 127.0.0.1 --port {port} --log-level warning",
}


def project(name: str, folder: Path) -> None:
    """Write what the page shows into the files that its blocks name, and what is around it."""
    files = {**AROUND, "shop/urls.py": URLS[name]}
    page = (ROOT / "docs" / "frameworks" / f"{name}.md").read_text(encoding="utf-8")
    for file, text in re.findall(r"^```python\n# (shop/\w+\.py)\n(.+?)^```$", page, re.MULTILINE | re.DOTALL):
        files[file] = f"{SETTINGS}{text}" if file == "shop/settings.py" else text
    assert len(files) > len(AROUND) + 3
    for file, text in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")


@contextmanager
def serving(name: str, folder: Path) -> Iterator[tuple[int, str]]:
    """The port, and the cookie of a session of ann's."""
    project(name, folder)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PROJECT_FILE": str(folder / "shop.db"),
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
    }
    how = {"cwd": folder, "env": environment, "timeout": 100, "text": True}
    made = subprocess.run([sys.executable, "prepare.py"], capture_output=True, check=False, **how)
    assert made.returncode == 0, made.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", *SERVERS[name].format(port=port).split()]
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None and time.monotonic() < end, "the server does not come up"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            threading.Event().wait(0.02)
        yield port, made.stdout.split()[-1]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)


@pytest.mark.parametrize("name", SERVERS)
def test_the_example_of_a_page_is_safe(name: str, tmp_path: Path) -> None:
    """R10, R17, E1, F6: sent twice, changed, without a key, and by nobody: one row, and each its documented answer."""
    form = name == "django"
    path = "/charges" if name == "ninja" else "/charges/"
    with serving(name, tmp_path) as (port, session):
        token = "a" * 32
        headers = {
            "Content-Type": "application/x-www-form-urlencoded" if form else "application/json",
            "Cookie": f"sessionid={session}; csrftoken={token}",
            "X-CSRFToken": token,
        }

        def post(cents: int, **more: str | None) -> tuple[int, bytes, str | None]:
            sent = {name.replace("_", "-"): line for name, line in {**headers, "Idempotency_Key": KEY, **more}.items()}
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
                body = f"cents={cents}" if form else json.dumps({"cents": cents})
                connection.request("POST", path, body, {name: line for name, line in sent.items() if line is not None})
                answer = connection.getresponse()
                return answer.status, answer.read(), answer.getheader("Idempotent-Replayed")

        nobody = post(5, Cookie=f"csrftoken={token}")
        first, again, changed, keyless = post(5), post(5), post(6), post(5, Idempotency_Key=None)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as ledger:
        assert ledger.execute("SELECT cents FROM shop_charge").fetchall() == [(5,)]
        assert ledger.execute("SELECT count(*) FROM twicesafe_records").fetchone() == (1,)
    assert nobody[0] in (401, 403)
    assert (first[0], first[2]) == (201, None)
    assert again == (201, first[1], "true")
    assert (changed[0], keyless[0]) == (422, 400)
