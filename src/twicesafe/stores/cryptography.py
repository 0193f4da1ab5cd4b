"""Keys for answers at rest: AES-256-GCM by the package cryptography.

    keys = Keyring({"2026-11": secret}, current="2026-11")
    store = AsyncSealedStore(AsyncpgStore(...), keys=keys)

To rotate, add a key everywhere, then make it the current one, and take the old one out when the last answer that it
encrypted has ended its retention.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import urandom
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from twicesafe.errors import ConfigurationError, SealBrokenError, SealKeyMissingError

__all__ = ["Keyring"]

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
LONGEST_ID: Final = 64


class Keyring:
    """A Cipher of several keys by their ids: all decrypt, `current` encrypts.

    A key is 32 random bytes, as `Keyring.new_key()` makes; an id is 1 to 64 printable ASCII characters and is stored in
    the clear with every answer. `discarded` names keys that were thrown away on purpose: what they encrypted is gone
    for good, and not, as with a key that is merely missing here, to be asked for again.
    """

    def __init__(self, keys: Mapping[str, bytes], current: str, *, discarded: Collection[str] = ()) -> None:
        if isinstance(discarded, str):
            raise ConfigurationError("discarded must be a collection of key ids, not a string")
        names: tuple[object, ...] = (*keys, *discarded)
        for name in names:
            if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_ID or not name.isascii():
                raise ConfigurationError(f"a key's id must have 1 to {LONGEST_ID} ASCII characters, not {name!r}")
            if not name.isprintable():
                raise ConfigurationError("a key's id must be printable")
        secrets: Mapping[str, object] = keys
        for label, key in secrets.items():
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise ConfigurationError(f"the key {label!r} must be {KEY_BYTES} bytes; Keyring.new_key() makes one")
        if current not in keys:
            raise ConfigurationError(f"current names the key {current!r}, which is not among keys")
        both = set(keys) & set(discarded)
        if both:
            raise ConfigurationError(f"the key {min(both)!r} is both among keys and discarded")
        self._ciphers: Final = {name.encode(): AESGCM(key) for name, key in keys.items()}
        self._discarded: Final = frozenset(name.encode() for name in discarded)
        self._current: Final = current.encode()

    @staticmethod
    def new_key() -> bytes:
        """32 random bytes. Keep them where your other secrets are."""
        return AESGCM.generate_key(bit_length=8 * KEY_BYTES)

    def encrypt(self, plain: bytes, context: bytes) -> bytes:
        """See Cipher.encrypt."""
        name, nonce = self._current, urandom(NONCE_BYTES)
        return bytes((len(name),)) + name + nonce + self._ciphers[name].encrypt(nonce, plain, name + context)

    def decrypt(self, sealed: bytes, context: bytes) -> bytes:
        """See Cipher.decrypt."""
        nonce_at = 1 + sealed[0] if sealed else 1
        text_at = nonce_at + NONCE_BYTES
        if nonce_at == 1 or text_at > len(sealed):
            raise SealBrokenError("a stored answer was changed: it is cut short")
        name, nonce, text = sealed[1:nonce_at], sealed[nonce_at:text_at], sealed[text_at:]
        cipher = self._ciphers.get(name)
        try:
            if cipher is not None:
                return cipher.decrypt(nonce, text, name + context)
        except InvalidTag:
            raise SealBrokenError("a stored answer was changed, or belongs to another record") from None
        shown = name.decode("ascii", "backslashreplace")
        if name in self._discarded:
            raise SealBrokenError(f"a stored answer was encrypted with the key {shown!r}, which was discarded")
        raise SealKeyMissingError(
            f"a stored answer was encrypted with the key {shown!r}, which this process does not have: give it to the "
            "Keyring, or name it in discarded if it is gone for good"
        )
