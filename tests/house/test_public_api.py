"""The promise in names."""

from __future__ import annotations

from importlib import import_module

from tests.house.public_api import LIST, PUBLIC, listing, names_of


def test_the_public_names_are_the_listed_ones() -> None:
    """House: a name is added to or taken from the public API on purpose, in a file that is reviewed."""
    assert listing() == LIST.read_text(encoding="utf-8"), "reviewed? then: python -m tests.house.public_api"


def test_every_listed_name_is_there() -> None:
    """House: whatever `__all__` promises can be imported, and names its own place of promise once."""
    for module in PUBLIC:
        loaded = import_module(module)
        names = names_of(module)
        assert len(set(names)) == len(names), module
        missing = [name for name in names if not hasattr(loaded, name)]
        assert not missing, f"{module} promises {missing}"


def test_the_root_offers_about_a_dozen_names() -> None:
    """House: what most users need is one import away, and little else is."""
    names = names_of("twicesafe")
    assert "Policy" in names
    assert len(names) <= 16
