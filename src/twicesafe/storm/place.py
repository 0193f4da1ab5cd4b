"""Where a private server lives: on which disk, in which network, and with what in its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`folder`: where its directory is made, None for the temporary folder. `logs`: where its log is, None for its own
    directory. It listens at `host` and lets in who comes from `client`. `through` is a command that starts another, in
    a network namespace say; `environment` is added to the server's, and `settings` to its settings.
    """

    folder: Path | None = None
    logs: Path | None = None
    host: str = "127.0.0.1"
    client: str = "127.0.0.1"
    through: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self, command: Sequence[str]) -> list[str]:
        """The server's command line, which sets its environment."""
        if not self.environment:
            return list(command)
        return ["env", *(f"{name}={value}" for name, value in self.environment.items()), *command]

    def log(self, directory: Path) -> Path:
        """The log of the server in `directory`."""
        return directory / "server.log" if self.logs is None else self.logs / f"{directory.name}.log"


HERE: Final = Place()
"""On 127.0.0.1, in the temporary folder."""
