"""Which of the orders that records hold were signed by who they say, looked at once each."""

from collections.abc import Callable
from typing import Final

from agiledart_kernel.errors import Refused
from agiledart_kernel.signed_commands import VerifiedCommand, command_hash

VerifyCommand = Callable[[bytes], VerifiedCommand]
"""A signed order → what it says and who gave it; raises `Refused`."""

MAX_KNOWN: Final = 4_096
"""Orders of which a node remembers whether their signatures are good."""


class Signatures:
    """What this node has found out about signatures of kept orders; no clock and no ban changes it.

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
        """What an order says, however long ago it was given; None: its giver did not sign it."""
        if self._verify is None or not raw:
            return None
        name = command_hash(raw)
        if name not in self._known:
            try:
                self._known[name] = self._verify(raw)
            except Refused as error:
                if error.reason == "banned":  # bans end
                    return None
                self._known[name] = None
            if len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]  # the oldest, never this one
        return self._known[name]
