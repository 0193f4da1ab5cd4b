"""The records' tables, version 2: what people did about records."""

from __future__ import annotations

from django.db import migrations  # type: ignore[import-untyped]

from twicesafe.django.tables import MakeTables


class Migration(migrations.Migration):  # type: ignore[misc]
    """No model goes with it: `twicesafe keys` reads it."""

    dependencies = (("twicesafe", "0001_records"),)
    operations = (MakeTables(version=2),)
