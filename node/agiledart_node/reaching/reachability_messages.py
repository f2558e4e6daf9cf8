"""Message between nodes about connections to its sender. Tag 490 to 499."""

from agiledart_kernel.machine import Message
from agiledart_kernel.reachability import Reachability

REACHABILITY_FEATURE = "reachability"
"""Name in HELLO of nodes that know this message, reservations at relays, and dials back."""

TICKETS_FEATURE = "executor-tickets"
"""Name in HELLO of nodes whose executors reach others at the ports of their agents. Executors listen where a node lacks it."""


class ReachabilityChanged(Message, frozen=True, gc=False, tag=490):
    """Notice of the sender's new reachability. The receiver uses it for later dials."""

    reach: Reachability


ReachabilityMessage = ReachabilityChanged
