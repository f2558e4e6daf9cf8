"""What one node has of a run's register: told when a majority of its voters is said to be gone for ever."""

import msgspec

from agiledart_kernel.counts import Count
from agiledart_recovery.wire.names import Ballot, Stamp
from agiledart_recovery.wire.register_value import RegisterValue


class RegisterStatus(msgspec.Struct, frozen=True, array_like=True):
    """A voter's file, and what a host was told.

    Args:
        seat: number of the voter's file; None: there is none.
        promised, accepted, value: what is in it.
        told: the newest value that the node was told as a host, so it was acknowledged by a majority.
    """

    voter_slot: Count | None = None
    promised: Ballot = Ballot()
    accepted: Stamp = Stamp()
    value: RegisterValue | None = None
    acknowledged_value: RegisterValue | None = None
