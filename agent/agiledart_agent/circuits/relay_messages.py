"""Messages of the service `relay`: circuits, costs to go, reservations of agents that only dial out, and dials back."""

from typing import Annotated, Final

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.name_patterns import OptionalApplicationName
from agiledart_kernel.node_id import NodeId
from agiledart_shuffle.cost_exchange import MAX_DESTINATIONS
from agiledart_shuffle.proposals import COST_MOST, MAX_RELAYS, UNKNOWN
from agiledart_transport.circuits import TICKET_BYTES

COSTS_FEATURE: Final = "costs"
"""Name in HELLO of agents that answer `ProbeCosts`."""

_Name = Annotated[str, msgspec.Meta(max_length=64)]
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
        relays: names of the relays behind this one, in order.
    """

    request: Count
    ticket: _Ticket
    cost: Annotated[int, msgspec.Meta(ge=0, le=COST_MOST)] = UNKNOWN
    relays: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=MAX_RELAYS)] = ()


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
    """Answer of the target's agent.

    Args:
        address: HOST:PORT; empty: no such executor, or not of this application.
        has_door: a preface with the executor's id at the agent's own port leads to the executor.
    """

    request: Count
    address: _Address
    has_door: bool = False


class RequestReservation(Message, frozen=True, gc=False, tag=6):
    """Request of an agent that only dials out: lead circuits to this agent over this link's way back, while it is open."""

    request: Count


class ReservationGranted(Message, frozen=True, gc=False, tag=7):
    """Answer of a relay: it will send `ConnectBack` for each circuit to this agent."""

    request: Count


class ConnectBack(Message, frozen=True, gc=False, tag=8):
    """Request of a relay to an agent with a reservation: connect to the address of this link with this ticket.

    Args:
        application, executor: as in `RequestCircuit`.
    """

    ticket: _Ticket
    application: OptionalApplicationName = ""
    executor: NodeId = NodeId(0)


class RequestDialBack(Message, frozen=True, gc=False, tag=9):
    """Request to a member: dial this agent at this address, afresh, and say whether it answered."""

    request: Count
    address: _Address


class DialBackAnswer(Message, frozen=True, gc=False, tag=10):
    """Answer: did this agent, proven by its key, answer at that address? `reason`: for people, when it did not."""

    request: Count
    reached: bool
    reason: _Word = ""


class CostRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Request for the cost to go to a destination; `relays`: number of further relays that the path may have."""

    destination: NodeId
    relays: Annotated[int, msgspec.Meta(ge=0, le=MAX_RELAYS)]


class CostClaim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Cost to go from the sender to a destination, in slots of 5 ms; `COST_MOST`: the sender knows no path."""

    destination: NodeId
    cost: Annotated[float, msgspec.Meta(ge=0, le=COST_MOST)]


class ProbeCosts(Message, frozen=True, gc=False, tag=11):
    """Probe of the link to a neighbour, answered at once by `CostsToGo`. The sender times the answer."""

    request: Count
    wanted: Annotated[tuple[CostRequest, ...], msgspec.Meta(max_length=MAX_DESTINATIONS)] = ()


class CostsToGo(Message, frozen=True, gc=False, tag=12):
    """Answer to a probe; with request 0 a notice of costs that moved."""

    request: Count
    claims: Annotated[tuple[CostClaim, ...], msgspec.Meta(max_length=MAX_DESTINATIONS)] = ()


RelayAnswer = CostsToGo | CircuitBooked | CircuitRefused | AddressAnswer | ReservationGranted | DialBackAnswer
RelayMessage = (
    ProbeCosts | RequestCircuit | RequestAddress | RequestReservation | ConnectBack | RequestDialBack | RelayAnswer
)
