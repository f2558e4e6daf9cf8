"""Cache of verified signatures of the signed commands in records."""

from collections.abc import Callable
from typing import Final

from agiledart_kernel.errors import Refused
from agiledart_kernel.signed_commands import VerifiedCommand, command_hash

VerifyCommand = Callable[[bytes], VerifiedCommand]
"""Function from a signed command to its content and signer; raises `Refused`."""

MAX_KNOWN: Final = 4_096
"""Commands of which a node remembers whether their signatures are valid."""


class Signatures:
    """Results of signature checks of kept commands; independent of clocks and bans.

    Args:
        verify: None: nothing is signed in this world.
    """

    def __init__(self, verify: VerifyCommand | None) -> None:
        self._verify = verify
        self._known: dict[bytes, VerifiedCommand | None] = {}

    @property
    def checker(self) -> Callable[[bytes], VerifiedCommand | None] | None:
        """`verified`; None: nothing is signed in this world."""
        return None if self._verify is None else self.verified

    def verified(self, raw: bytes) -> VerifiedCommand | None:
        """Return the content of a command, however old; None: its signature is invalid."""
        if self._verify is None or not raw:
            return None
        name = command_hash(raw)
        if name not in self._known:
            try:
                self._known[name] = self._verify(raw)
            except Refused as error:
                if error.reason == "banned":  # not cached, because bans end
                    return None
                self._known[name] = None
            if len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]  # the oldest entry, never the new one
        return self._known[name]
