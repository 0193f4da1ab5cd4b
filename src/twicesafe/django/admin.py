"""Records in the admin: to be looked at, by those who may, and never to be changed by hand."""

from __future__ import annotations

from typing import Any

from django.contrib import admin  # type: ignore[import-untyped]

from twicesafe.django.models import Record


@admin.register(Record)
class RecordAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """A change by hand could make an operation run twice; outcomes that are unknown are settled through the store."""

    list_display = ("operation", "scope", "key_hint", "state", "status", "created", "until")
    list_filter = ("state", "effects")
    search_fields = ("=scope", "=operation")
    fields = (
        "operation",
        "scope",
        "key_hint",
        "state",
        "effects",
        "status",
        "epoch",
        "created",
        "leased_until",
        "until",
    )
    readonly_fields = fields
    show_full_result_count = False
    """Counting millions of rows takes longer than looking at a hundred."""

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002 - of ModelAdmin
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002 - of ModelAdmin
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002 - of ModelAdmin
        return False
