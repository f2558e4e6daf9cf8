"""What messages say of peers: where one lies, how busy it is, which ones the teller believes alive."""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.peer import Peer
from agiledart_overlay.tables.coordinates import ORIGIN, Coordinate

MAX_SIGHTINGS = 256
"""Peers listed in one message: a leaf set, a neighbourhood set and some rows."""

Permille = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
Path = Annotated[tuple[Peer, ...], msgspec.Meta(max_length=MAX_PATH)]


class Vitals(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a node says of itself on its acknowledgements.

    Args:
        coordinate: where it lies in the space of latencies.
        load_permille: how much of its capacity is in use, 0 to 1000.
    """

    coordinate: Coordinate = ORIGIN
    load_permille: Permille = 0


class Sighting(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A peer that the teller believes alive.

    Args:
        peer: who.
        refutations: how many times the peer has refuted its death in this life; a later one outranks a declared failure.
        coordinate: where it said it lies; only used to choose whom to contact first.
    """

    peer: Peer
    refutations: Count = 0
    coordinate: Coordinate | None = None


Sightings = Annotated[tuple[Sighting, ...], msgspec.Meta(max_length=MAX_SIGHTINGS)]
