"""The provider within a test: in a thread of its process, on a free port of 127.0.0.1, with its books in a file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final

from twicesafe.demo.provider.faults import ProviderFault
from twicesafe.demo.provider.ledger import WINDOW, Charge, ProviderLedger
from twicesafe.demo.provider.serving import ProviderServer
from twicesafe.errors import ConfigurationError

__all__ = ["FakeProvider"]

SLOW: Final = timedelta(seconds=1)
"""How long a slow charge takes. Nobody has to wait for it: closing the provider ends that."""

FATAL: Final = (ProviderFault.KILL_BEFORE, ProviderFault.KILL_AFTER)
"""Its process is the test's."""

LOOK: Final = 0.01
"""Seconds within which it ends when it is told to."""


class FakeProvider:
    """A context in which the provider answers at `url`.

    It forgets a key when `window` has passed since its charge, by `clock` in microseconds, a ManualClock say; without
    one by the system's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        window: timedelta = WINDOW,
        clock: Callable[[], int] | None = None,
        slow: timedelta = SLOW,
    ) -> None:
        file = folder / "provider.db"
        self.ledger = (
            ProviderLedger(file, window) if clock is None else ProviderLedger(file, window, lambda: clock() / 1_000_000)
        )
        self._server = ProviderServer(self.ledger, slow=slow)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(LOOK,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.port}"

    def __enter__(self) -> FakeProvider:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.ledger.close()

    def arm(self, fault: ProviderFault | str, reference: str | None = None) -> None:
        """Let the next charge meet `fault`, or the next with this `reference`; one after the other."""
        fault = ProviderFault(fault)
        if fault in FATAL:
            raise ConfigurationError(
                f"{fault} would kill the test: run `python -m twicesafe.demo.provider` as a process"
            )
        self.ledger.arm(fault, reference)

    def charges(self) -> list[Charge]:
        """All that was charged."""
        return self.ledger.charges()

    def count(self) -> int:
        """How many charges there are: for `assert_one_effect`."""
        return len(self.charges())
