"""Which addresses anybody can reach: what a URL that comes from a user may lead to."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from twicesafe.errors import NotDeliveredError, RefusedError

_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
"""IPv4 addresses as IPv6-only networks write them."""
_ASSIGNED: Final = IPv6Network("2000::/3")
"""What the internet's IPv6 addresses are taken from. Elsewhere are some that lead into the own network."""


async def public_address(host: str, port: int) -> str:
    """An address of the host. RefusedError where one of them is private, NotDeliveredError where there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NotDeliveredError("the webhook's host has no address") from error
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(is_public(address) for address in addresses):
        raise RefusedError("the webhook's host is at a private address, and those are not called")
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether it is an address on the internet, in whatever notation."""
    found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found in _TRANSLATED:
            found = IPv4Address(int(found) & 0xFFFF_FFFF)
        elif found.sixtofour is not None:
            found = found.sixtofour
        elif found not in _ASSIGNED:
            return False
    return found.is_global and not found.is_multicast
