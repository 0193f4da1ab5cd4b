"""The records' tables, version 1."""

from __future__ import annotations

from django.db import migrations, models  # type: ignore[import-untyped]

from twicesafe.django.models import DigestField
from twicesafe.django.tables import MakeTables


class Migration(migrations.Migration):  # type: ignore[misc]
    """Record is a model that Django does not manage, on tables that it makes as twicesafe says."""

    initial = True
    dependencies = ()
    operations = (
        MakeTables(version=1),
        migrations.CreateModel(
            name="Record",
            fields=[
                ("digest", DigestField(editable=False, primary_key=True, serialize=False)),
                ("scope", models.TextField(editable=False)),
                ("operation", models.TextField(editable=False)),
                ("key_hint", models.TextField(editable=False)),
                ("state", models.TextField(editable=False)),
                ("effects", models.TextField(editable=False)),
                ("epoch", models.BigIntegerField(editable=False)),
                ("status", models.BigIntegerField(editable=False, null=True)),
                ("created_at", models.BigIntegerField(editable=False)),
                ("lease_until", models.BigIntegerField(editable=False)),
                ("key_until", models.BigIntegerField(editable=False)),
            ],
            options={"db_table": "twicesafe_records", "managed": False},
        ),
    )
