"""The page of the checker's gallery shows every server in it."""

from __future__ import annotations

from scripts import make_gallery
from tests.conformance.gallery.exhibits import DUE
from twicesafe.conformance.trials import ALL


def test_the_page_of_the_gallery_is_the_gallery() -> None:
    """House: docs/gallery.md has each server, its fault and the trials that name it; `make docs` writes it anew."""
    assert make_gallery.filled() == make_gallery.PAGE.read_text(encoding="utf-8")
    made = make_gallery.tables()
    assert made.count("\n| ") - made.count("| the server |") >= len(DUE)
    assert {one.name for one in ALL} & set(made.split("`"))
