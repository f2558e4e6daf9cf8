"""Status of a run's register on one node, reported when a majority of its voters is said to be lost for ever."""

import msgspec

from agiledart_kernel.counts import Count
from agiledart_recovery.wire.names import Ballot, Stamp
from agiledart_recovery.wire.register_value import RegisterValue


class RegisterStatus(msgspec.Struct, frozen=True, array_like=True):
    """A voter's file, and the newest value that a host has received.

    Args:
        voter_slot: number of the voter's file; None: there is none.
        promised, accepted, value: content of the file.
        acknowledged_value: the newest value that the node received as a host, so a majority had acknowledged it.
    """

    voter_slot: Count | None = None
    promised: Ballot = Ballot()
    accepted: Stamp = Stamp()
    value: RegisterValue | None = None
    acknowledged_value: RegisterValue | None = None
