"""Reports about peers in messages: place, load, and the peers that the sender believes alive."""

from typing import Annotated

import msgspec

from agiledart_kernel.coordinates import ORIGIN, Coordinate
from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.peer import Peer

MAX_SIGHTINGS = 256
"""Peers listed in one message: a leaf set, a neighbourhood set and some rows."""

Permille = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
Path = Annotated[tuple[Peer, ...], msgspec.Meta(max_length=MAX_PATH)]


class Vitals(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node's report about itself on its acknowledgements.

    Args:
        coordinate: its place in the space of latencies.
        load_permille: used share of its capacity, 0 to 1000.
    """

    coordinate: Coordinate = ORIGIN
    load_permille: Permille = 0


class Sighting(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Peer that the sender believes alive.

    Args:
        peer: the peer.
        refutations: times that the peer has refuted its death in this incarnation; a later one outranks a declared failure.
        coordinate: the place that it reported; only used to choose the order of contacts.
    """

    peer: Peer
    refutations: Count = 0
    coordinate: Coordinate | None = None


Sightings = Annotated[tuple[Sighting, ...], msgspec.Meta(max_length=MAX_SIGHTINGS)]
