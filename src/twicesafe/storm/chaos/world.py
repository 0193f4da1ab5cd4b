"""The clock and the disk that a process lives with: `world.c` beside this, preloaded, and told so in a small file."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from twicesafe.storm.errors import StormError

SOURCE: Final = Path(__file__).with_name("world.c")
NAMED_BY: Final = "TWICESAFE_CHAOS_WORLD"
_SIZE: Final = 32
_OFFSET: Final = 0
_DELAY: Final = 8
_COUNTS: Final = 16
_BILLION: Final = 1_000_000_000


class Flushes(NamedTuple):
    """How many there were while they were delayed, and how many seconds all of them took."""

    number: int
    seconds: float


class World:
    """The world of all processes that were told of `file`, which is made. It begins as the true one."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(bytes(_SIZE))
        # Databases are other users.
        file.chmod(0o666)
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), _SIZE)
        self.offset = 0.0
        """By how many seconds its clock is off."""

    def set_clock(self, offset: float) -> None:
        """Let the clock be off by so many seconds."""
        self.offset = offset
        struct.pack_into("=q", self._memory, _OFFSET, round(offset * _BILLION))

    def set_delay(self, seconds: float) -> None:
        """Let each flush to the disk take so much longer."""
        struct.pack_into("=q", self._memory, _DELAY, round(seconds * _BILLION))

    def flushes(self) -> Flushes:
        """So far."""
        number, nanoseconds = struct.unpack_from("=2q", self._memory, _COUNTS)
        return Flushes(number, nanoseconds / _BILLION)


def build(folder: Path) -> Path:
    """Compile the library into `folder`. StormError where that cannot be done."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise StormError("no C compiler (cc, gcc, clang) was found: install one, for instance by `apt-get install gcc`")
    library = folder / "world.so"
    done = subprocess.run(  # noqa: S603
        [compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"],
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StormError(f"the library that clocks and disks go by was not built: {done.stderr.strip()[-600:]}")
    return library
