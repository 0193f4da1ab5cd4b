"""How property tests run here: without a time limit for each example, because the machine may be busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("core", deadline=None)
settings.load_profile("core")
