"""The Content-Type of a request, taken apart."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_NAME: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ESSENCE: Final = re.compile(rb"[ \t]*(%b/%b)[ \t]*" % (_NAME, _NAME))
_PARAMETER: Final = re.compile(rb';[ \t]*(?:(%b)=(?:(%b)|"([^"\\]*)"))?[ \t]*' % (_NAME, _NAME))


class MediaType(NamedTuple):
    """`essence` and the parameters' names are in lower case, values as sent, without their quotes."""

    essence: bytes
    parameters: tuple[tuple[bytes, bytes], ...] = ()

    def without(self, name: bytes) -> bytes:
        """One spelling of this type without the parameter `name`; two types that differ elsewhere never share it."""
        kept = [b';%b="%b"' % parameter for parameter in self.parameters if parameter[0] != name]
        return self.essence + b"".join(kept)

    def values(self, name: bytes) -> list[bytes]:
        """Every value of the parameter `name`."""
        return [value for given, value in self.parameters if given == name]


def media_type(content_type: bytes) -> MediaType | None:
    """None where it is not well formed, or escapes characters in a quoted value, which nobody does."""
    start = _ESSENCE.match(content_type)
    if start is None:
        return None
    parameters = []
    at = start.end()
    while at < len(content_type):
        found = _PARAMETER.match(content_type, at)
        if found is None:
            return None
        name, bare, quoted = found.groups()
        if name is not None:
            parameters.append((name.lower(), quoted if bare is None else bare))
        at = found.end()
    return MediaType(start[1].lower(), tuple(parameters))
