"""The first of its tables."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL)]  # noqa: RUF012

    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name="Charge",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("cents", models.IntegerField()),
                ("user", models.ForeignKey(on_delete=models.PROTECT, to=settings.AUTH_USER_MODEL)),
            ],
            options={"db_table": "charges"},
        ),
    ]
