"""`Reachability`: addresses and relays that lead to a node now. It changes while the node runs, with addresses and relays."""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.node_id import NodeId

MAX_FURTHER_ADDRESSES = 3
"""Addresses of a node beside its usual one, of another network or IP family."""

MAX_RESERVED_RELAYS = 2
"""Relays to which a node that only dials out keeps links: one may be lost."""


_Address = Annotated[str, msgspec.Meta(max_length=270, pattern=r"^[^\x00-\x20\x7f]*\Z")]


class Reachability(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node's own report on connections to it. It is not verified: it decides only which paths are tried first.

    Args:
        revision: grows with each change in one incarnation of the node; 0: the node has said nothing yet.
        outside: the host under which nodes of other networks see its connections; empty: unknown.
        holders: relays to which it keeps links, since it only dials out; empty: it takes connections, or does not know.
        is_open: nodes outside its network have reached it by a dial.
        addresses: further HOST:PORT at which it takes connections.
    """

    revision: Count = 0
    outside: Annotated[str, msgspec.Meta(max_length=64)] = ""
    holders: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_RESERVED_RELAYS)] = ()
    is_open: bool = False
    addresses: Annotated[tuple[_Address, ...], msgspec.Meta(max_length=MAX_FURTHER_ADDRESSES)] = ()


UNKNOWN_REACHABILITY = Reachability()
