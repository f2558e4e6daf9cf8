"""Message between nodes about connections to its sender. Tag 490 to 499."""

from agiledart_kernel.machine import Message
from agiledart_kernel.reachability import Reachability

REACHABILITY_FEATURE = "reachability"
"""Name in HELLO of nodes that know this message, reservations at relays, and dials back."""


class ReachabilityChanged(Message, frozen=True, gc=False, tag=490):
    """Notice of the sender's new reachability. The receiver uses it for later dials."""

    reach: Reachability


ReachabilityMessage = ReachabilityChanged
