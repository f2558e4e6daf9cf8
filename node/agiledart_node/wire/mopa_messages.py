"""Messages of MOPA among the hosts of an application. Tags 510 to 519.

A host tells the hosts of neighbouring instances where its own ones are in the space of latencies (`InstancePosition`), finds nodes
near a point (`QueryNearest`), and asks the coordinator for a place (`RequestPlace`). That needs no signed command: the user of the
application ordered `moves = mopa`, and a host gets no more than what its death would lead to.

Source: spec of placement §10, "MOPA among hosts".
"""

from typing import Annotated

import msgspec

from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.counts import Count
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Message
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.peer import Peer
from agiledart_placement.latency_space.mopa_instance import MAX_PULLS
from agiledart_placement.latency_space.nearest_walk import ACQUAINTANCES

_Position = Annotated[int, msgspec.Meta(ge=-60 * SECOND, le=60 * SECOND)]
_Text = Annotated[str, msgspec.Meta(max_length=1_024)]


class SpacePoint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Point of the space of one-way delays, in nanoseconds."""

    x: _Position
    y: _Position
    z: _Position


class InstanceCopy(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An instance: number of its stage, and its index."""

    stage: Count
    index: Count


class ClusterPull(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Pull on an instance that shares the sender's point, from a neighbour outside.

    Args:
        member, neighbour: the link; at: point of the neighbour; rate_milli: thousandths of bytes or rows per second.
    """

    member: InstanceCopy
    neighbour: InstanceCopy
    at: SpacePoint
    rate_milli: Count


class InstancePosition(Message, frozen=True, gc=False, tag=510):
    """Position of an instance, for a neighbour that may move. Answered by `Acknowledged`.

    Args:
        sender, receiver: the two instances.
        rate_milli: thousandths of bytes or rows per second from the sender to the receiver; None: not measured, or they flow back.
        pulls: on the sender's side of the link, where both are at one point.
    """

    request: int
    application: ApplicationName
    version: Count
    sender: InstanceCopy
    receiver: InstanceCopy
    at: SpacePoint
    rate_milli: Count | None = None
    pulls: Annotated[tuple[ClusterPull, ...], msgspec.Meta(max_length=MAX_PULLS)] = ()


class QueryNearest(Message, frozen=True, gc=False, tag=511):
    """Request for those acquaintances of a node that are nearest to a point. Answered by `NearestNodes`."""

    request: int
    at: SpacePoint


class NearNode(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node, and its place in the space of latencies."""

    peer: Peer
    coordinate: Coordinate


class NearestNodes(Message, frozen=True, gc=False, tag=512):
    """Answer to `QueryNearest`, nearest first."""

    request: int
    nodes: Annotated[tuple[NearNode, ...], msgspec.Meta(max_length=ACQUAINTANCES)] = ()


class RequestPlace(Message, frozen=True, gc=False, tag=513):
    """Request of a host to the coordinator of a run: move one of its instances to the best of these nodes.

    Answered by `PlaceNoted`. The coordinator weighs the move as it weighs its own ones.
    """

    request: int
    application: ApplicationName
    version: Count
    instance: InstanceCopy
    candidates: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=ACQUAINTANCES)]


class PlaceNoted(Message, frozen=True, gc=False, tag=514):
    """Answer to `RequestPlace`: the wish is weighed at the next look.

    Args:
        refusal: why it is not, in words; is_not_coordinator: this node does not coordinate the run.
    """

    request: int
    refusal: _Text = ""
    is_not_coordinator: bool = False


MopaMessage = InstancePosition | QueryNearest | NearestNodes | RequestPlace | PlaceNoted
