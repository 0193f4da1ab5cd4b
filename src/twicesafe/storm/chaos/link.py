"""The network between servers and database: two network namespaces with a cable between them, which is cut.

The process is in the one namespace, which it was started in (see run.py); the other is the database's. Both, with all
addresses and rules in them, are gone when the last process in them is.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from twicesafe.storm.chaos.plan import How
from twicesafe.storm.errors import StormError

HERE: Final = "10.77.0.1"
THERE: Final = "10.77.0.2"
_OUR_END: Final = "app0"
_THEIR_END: Final = "db0"

_RULES: Final = {
    How.SILENCE: (("INPUT", "-i", _THEIR_END, "-j", "DROP"), ("OUTPUT", "-o", _THEIR_END, "-j", "DROP")),
    How.ANSWERS: (("OUTPUT", "-o", _THEIR_END, "-j", "DROP"),),
    How.RESET: (("INPUT", "-i", _THEIR_END, "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"),),
}
_LATE: Final = ("netem", "delay", "60ms", "30ms", "loss", "1%")
_NARROW: Final = ("tbf", "rate", "96kbit", "burst", "1600", "latency", "400ms")
"""Where the kernel has no netem: a line so narrow that what is sent queues up for 0.4 s, and is lost beyond that."""


class Passed(NamedTuple):
    """What was sent and did not pass, or not at once; and over how many connections that were open when it began."""

    packets: int
    connections: int


def wake_loopback() -> None:
    """In a new network namespace even 127.0.0.1 is down."""
    _run("ip", "link", "set", "dev", "lo", "up")


class Link:
    """The cable, from `open` on. `through` is the command that starts another in the database's namespace."""

    host = THERE
    client = HERE

    def __init__(self, folder: Path) -> None:
        self._space = folder / "network"
        self.through = ("nsenter", f"--net={self._space}")
        self.way = ""
        """By which of the kernel's ways it is slow, once it was."""
        self._connections = 0

    def open(self) -> None:
        """Lay it. StormError where that is not allowed."""
        self._space.touch()
        _run("unshare", f"--net={self._space}", "true")
        ends = ("name", _OUR_END, "type", "veth", "peer", "name", _THEIR_END, "netns", str(self._space))
        _run("ip", "link", "add", *ends)
        _run("ip", "address", "add", f"{HERE}/30", "dev", _OUR_END)
        _run("ip", "link", "set", "dev", _OUR_END, "up")
        self._there("ip", "address", "add", f"{THERE}/30", "dev", _THEIR_END)
        for device in ("lo", _THEIR_END):
            self._there("ip", "link", "set", "dev", device, "up")

    def close(self) -> None:
        """Give the name of the namespace back."""
        subprocess.run(["umount", self._space], capture_output=True, check=False)  # noqa: S603, S607

    async def cut(self, how: How) -> None:
        """From now on."""
        await asyncio.to_thread(self._cut, how)

    async def mend(self) -> Passed:
        """As if it had never been cut."""
        return await asyncio.to_thread(self._mend)

    async def slow(self) -> None:
        """Let what passes pass late, both ways."""
        await asyncio.to_thread(self._slow)

    async def speed(self) -> Passed:
        """Let it pass as fast as before."""
        return await asyncio.to_thread(self._speed)

    # --- how ---------------------------------------------------------------------------------------------------------

    def _cut(self, how: How) -> None:
        self._connections = self._established()
        for rule in _RULES[how]:
            self._there("iptables", "-w", "-A", *rule)

    def _mend(self) -> Passed:
        packets = 0
        for chain in ("INPUT", "OUTPUT"):
            listed = self._there("iptables", "-w", "-nvxL", chain).splitlines()[2:]
            packets += sum(int(line.split()[0]) for line in listed)
            self._there("iptables", "-w", "-F", chain)
        return Passed(packets, self._connections)

    def _slow(self) -> None:
        self._connections = self._established()
        try:
            self._shaped("add", *_LATE)
        except StormError:
            self._shaped("add", *_NARROW)

    def _speed(self) -> Passed:
        shown = ("tc", "-s", "qdisc", "show", "dev")
        packets = _held_up(_run(*shown, _OUR_END)) + _held_up(self._there(*shown, _THEIR_END))
        self._shaped("del")
        return Passed(packets, self._connections)

    def _shaped(self, verb: str, *how: str) -> None:
        _run("tc", "qdisc", verb, "dev", _OUR_END, "root", *how)
        self._there("tc", "qdisc", verb, "dev", _THEIR_END, "root", *how)
        if how:
            self.way = how[0]

    def _established(self) -> int:
        return len(_run("ss", "-Htn", "state", "established", "dst", THERE).splitlines())

    def _there(self, *command: str) -> str:
        return _run(*self.through, *command)


def _held_up(statistics: str) -> int:
    """Packets: with netem all that were sent, with tbf those that had to wait or did not fit."""
    words = statistics.replace(",", " ").replace("(", " ").replace(")", " ").split()
    if "netem" in words:
        return int(words[words.index("pkt") - 1])
    return sum(int(words[words.index(name) + 1]) for name in ("dropped", "overlimits"))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise StormError(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
