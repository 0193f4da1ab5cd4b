"""The tables, version 3: the outbox and the inbox."""

from __future__ import annotations

from django.db import migrations  # type: ignore[import-untyped]  # Django brings no types

from twicesafe.django.tables import MakeTables


class Migration(migrations.Migration):  # type: ignore[misc]  # so this is Any
    """No model goes with it: `twicesafe.outbox` and `twicesafe.inbox` write and read it."""

    dependencies = (("twicesafe", "0002_audit"),)
    operations = (MakeTables(version=3),)
