"""Messages of the service `relay`: a request for a circuit, the address at which the target takes it, and the ticket."""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.names import OptionalApplicationName
from agiledart_kernel.node_id import NodeId
from agiledart_shuffle.proposals import COST_MOST, MAX_RELAYS, UNKNOWN
from agiledart_transport.circuits import TICKET_BYTES

_Word = Annotated[str, msgspec.Meta(max_length=32, pattern=r"^[a-z ]*\Z")]
_Address = Annotated[str, msgspec.Meta(max_length=270, pattern=r"^[^\x00-\x20\x7f]*\Z")]
_Ticket = Annotated[bytes, msgspec.Meta(min_length=TICKET_BYTES, max_length=TICKET_BYTES)]


class RequestCircuit(Message, frozen=True, gc=False, tag=1):
    """Request to a relay: lead a circuit to this agent, or to one of its executors.

    Args:
        target: the agent.
        application, executor: application and own id of the executor; empty and 0 for the agent itself.
        visited: the requester and relays that were asked before; none may come twice.
    """

    request: Count
    target: NodeId
    application: OptionalApplicationName = ""
    executor: NodeId = NodeId(0)
    visited: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_RELAYS + 1)] = ()


class CircuitBooked(Message, frozen=True, gc=False, tag=2):
    """Answer of a relay: connect to its port with this ticket.

    Args:
        cost: of the path from the relay to the target, in slots of 5 ms, as the relay claims.
    """

    request: Count
    ticket: _Ticket
    cost: Annotated[int, msgspec.Meta(ge=0, le=COST_MOST)] = UNKNOWN


class CircuitRefused(Message, frozen=True, gc=False, tag=3):
    """Refusal of a relay, with one of `REFUSALS`."""

    request: Count
    reason: _Word


class RequestAddress(Message, frozen=True, gc=False, tag=4):
    """Request of a relay to the target's agent: the address for a circuit to it, or to an executor of it."""

    request: Count
    application: OptionalApplicationName = ""
    executor: NodeId = NodeId(0)


class AddressAnswer(Message, frozen=True, gc=False, tag=5):
    """Answer of the target's agent: HOST:PORT; empty: no such executor, or not of this application."""

    request: Count
    address: _Address


RelayMessage = RequestCircuit | CircuitBooked | CircuitRefused | RequestAddress | AddressAnswer
