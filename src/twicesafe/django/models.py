"""Records as operators may see them: of a key its hint, of a request and its answer nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import models  # type: ignore[import-untyped]


class DigestField(models.BinaryField):  # type: ignore[misc]
    """32 bytes in the database, text in hexadecimal in an address."""

    def from_db_value(self, value: Any, *_: object) -> str | None:
        return None if value is None else bytes(value).hex()

    def to_python(self, value: Any) -> Any:
        return value

    def get_prep_value(self, value: Any) -> Any:
        return bytes.fromhex(value) if isinstance(value, str) else value

    def value_to_string(self, obj: Any) -> str:
        return str(self.value_from_object(obj))


class Record(models.Model):  # type: ignore[misc]
    """A row of the store's, without its secrets. The store writes it, nobody else."""

    digest = DigestField(primary_key=True, editable=False)
    scope = models.TextField(editable=False)
    operation = models.TextField(editable=False)
    key_hint = models.TextField(editable=False)
    state = models.TextField(editable=False)
    effects = models.TextField(editable=False)
    epoch = models.BigIntegerField(editable=False)
    status = models.BigIntegerField(null=True, editable=False)
    created_at = models.BigIntegerField(editable=False)
    lease_until = models.BigIntegerField(editable=False)
    key_until = models.BigIntegerField(editable=False)

    class Meta:
        managed = False
        app_label = "twicesafe"
        db_table = "twicesafe_records"

    def __str__(self) -> str:
        return f"{self.operation} {self.key_hint}"

    @property
    def created(self) -> datetime:
        """When the key was first claimed, on the store's clock."""
        return _moment(self.created_at)

    @property
    def until(self) -> datetime:
        """Until when the key is remembered."""
        return _moment(self.key_until)

    @property
    def leased_until(self) -> datetime:
        """Until when the claim is its owner's; of no meaning once it is completed."""
        return _moment(self.lease_until)


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)
