"""Its models."""

from django.conf import settings
from django.db import models


class Charge(models.Model):
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    cents = models.IntegerField()

    class Meta:
        db_table = "charges"
