"""`python -m twicesafe` is the program `twicesafe`."""

from __future__ import annotations

from twicesafe.cli import main

if __name__ == "__main__":
    main()
