"""A small disk for a database: a file system in a file, or in memory where that cannot be mounted."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Final

from twicesafe.storm.errors import StormError

_CHUNKS: Final = (16 << 20, 1 << 20, 64 << 10, 4 << 10)
"""Bytes. Smaller and smaller ones, until not one more fits."""


class SmallDisk:
    """A disk of `megabytes` at `folder`, from the first `mount` to `unmount`. It needs root."""

    def __init__(self, folder: Path, image: Path, megabytes: int) -> None:
        self.folder = folder
        self.kind = ""
        """Of file system."""
        self._image = image
        self._megabytes = megabytes
        self._ballast = folder / "ballast"

    def mount(self) -> None:
        """Make it and have it there. StormError."""
        self.folder.mkdir()
        with self._image.open("wb") as image:
            image.truncate(self._megabytes << 20)
        try:
            # Nothing is reserved for root, who fills it up.
            _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
            _run("mount", "-o", "loop", str(self._image), str(self.folder))
            self.kind = "ext4"
        except StormError:
            _run("mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.folder))
            self.kind = "tmpfs"
        self.folder.chmod(0o755)

    def unmount(self) -> None:
        """Be rid of it, whoever still looks at it."""
        with contextlib.suppress(StormError):
            _run("umount", "-l", str(self.folder))

    def fill(self) -> None:
        """Let nothing more fit on it."""
        file = os.open(self._ballast, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            size = os.fstat(file).st_size
            for chunk in _CHUNKS:
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file, size, chunk)
                        size += chunk
        finally:
            os.close(file)

    def free(self) -> None:
        """Let there be room again."""
        self._ballast.unlink(missing_ok=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise StormError(f"{command[0]} failed: {done.stderr.strip()[-300:]}")
