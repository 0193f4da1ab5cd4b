"""A failed assertion of a case says what it met."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.behaviour.cases", "tests.behaviour.client", "tests.behaviour.wire")
