"""Messages between nodes about connections to their senders. Tag 490 to 499."""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.reachability import Reachability

REACHABILITY_FEATURE = "reachability"
"""Name in HELLO of nodes that know `ReachabilityChanged`, reservations at relays, and dials back."""

TICKETS_FEATURE = "executor-tickets"
"""Name in HELLO of nodes whose executors reach others at the ports of their agents. Executors listen where a node lacks it."""

PUNCHING_FEATURE = "punching"
"""Name in HELLO of nodes that answer `RequestPunch`."""

_SocketAddress = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[^\x00-\x20\x7f]*\Z")]


class ReachabilityChanged(Message, frozen=True, gc=False, tag=490):
    """Notice of the sender's new reachability. The receiver uses it for later dials."""

    reach: Reachability


class RequestPunch(Message, frozen=True, gc=False, tag=491):
    """Request to connect to the sender at one moment, from a port whose outside address the answer names.

    Args:
        outside: HOST:PORT under which others see the sender's port for this punch.
    """

    request: Count
    outside: _SocketAddress


class PunchAnswer(Message, frozen=True, gc=False, tag=492):
    """Answer to `RequestPunch`.

    Args:
        outside: HOST:PORT under which others see this node's port; empty: it does not punch now.
        took_ns: time from the request to this answer.
    """

    request: Count
    outside: _SocketAddress = ""
    took_ns: Count = 0


class PunchNow(Message, frozen=True, gc=False, tag=493):
    """Moment of a try: the receiver connects at once, the sender half a round trip after it was sent."""

    request: Count


PunchMessage = RequestPunch | PunchAnswer | PunchNow
ReachabilityMessage = ReachabilityChanged | PunchMessage
