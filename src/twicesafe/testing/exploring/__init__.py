"""Every interleaving of a few programs, up to a bound: for whoever wants to know what a crash at each place leaves.

A program is a generator that yields what it wants done and is sent what came of it, as the decisions of this library
are. A model says what can happen next and what must never be so; `explore` goes every way there is.
"""

from __future__ import annotations

from twicesafe.testing.exploring.places import Place, Program, Thrown, Told
from twicesafe.testing.exploring.search import (
    Broken,
    BrokenError,
    Explored,
    Model,
    explore,
    replay,
    shortest,
)

__all__ = [
    "Broken",
    "BrokenError",
    "Explored",
    "Model",
    "Place",
    "Program",
    "Thrown",
    "Told",
    "explore",
    "replay",
    "shortest",
]
