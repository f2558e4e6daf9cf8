"""Shares of a run's key, as they travel and as voters store them."""

from typing import Annotated

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.limits import MAX_DEALERS, MAX_VOTERS
from agiledart_recovery.wire.names import Digest


class KeyShare(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Share of a run's key.

    Args:
        deal: names the voters among which the key was split; shares of different deals do not combine.
        index: position of the share's voter among them, from 1.
        share: as many bytes as the key.
    """

    deal: Digest
    index: Annotated[int, msgspec.Meta(ge=1, le=MAX_VOTERS)]
    share: Digest


class DealtShare(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Share on a voter's disk, with the nodes that have dealt it."""

    share: KeyShare
    dealers: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_DEALERS)]
