"""What a node and its driver say to each other about state on neighbours: elements that were saved here, fragments of others'.

Bytes are the driver's business: it seals an element under the run's key, cuts it, brings fragments to holders, fetches them, puts
them together again and looks at hashes. The node says which, from whom, to whom.
"""

from agiledart_kernel.machine import Effect, Event
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot


class StoreFragment(Effect, frozen=True, gc=False):
    """Bring one fragment of an element that lies here to a holder. `Completed` when it is on the holder's disk, else `Failed`.

    Args:
        secret: key of the run.
        life: in which this host wants that.
    """

    request: int
    replica_node: Peer
    key: FragmentKey
    snapshot: InstanceSnapshot
    secret: bytes
    attempt: int


class FetchFragment(Effect, frozen=True, gc=False):
    """Bytes `offset … offset + length` of a holder's fragment; all of them, and their hash is looked at, when `length` is 0.

    `Completed.result`: bytes.
    """

    request: int
    replica_node: Peer
    key: FragmentKey
    snapshot: InstanceSnapshot
    offset: int
    length: int


class FindSnapshot(Effect, frozen=True, gc=False):
    """Does an element lie here whole? `Completed.result`: bool."""

    request: int
    run: RunId
    digest: bytes


class RebuildSnapshot(Effect, frozen=True, gc=False):
    """Put an element together and on this node's disk, as if it had been saved here. `Failed`: it is not the one that was saved.

    Args:
        key: of any of its fragments.
        stripes: index of a fragment → its bytes, for each stripe; with more than m of them, one may lie.
        secret: key of the run.
    """

    request: int
    key: FragmentKey
    snapshot: InstanceSnapshot
    stripes: tuple[dict[int, bytes], ...]
    secret: bytes


class DropStoredFragments(Effect, frozen=True, gc=False):
    """Nobody needs these fragments here any more."""

    keys: tuple[FragmentKey, ...]


class FragmentDecision(Effect, frozen=True, gc=False):
    """Answer to `FragmentOffered`: why the fragment is not taken, one of `REFUSALS` and a sentence; empty when it is."""

    request: int
    refused: str = ""
    text: str = ""


class FragmentOffered(Event, frozen=True, gc=False):
    """A peer wants a fragment to be kept here. Answered by `FragmentDecision`; `request` is the driver's own number.

    `life`: in which the peer is; a fragment that is made again belongs to an element of an older one.
    """

    request: int
    sender: Peer
    key: FragmentKey
    attempt: int


class FragmentStored(Event, frozen=True, gc=False):
    """It is on the disk."""

    key: FragmentKey
    owner: Peer


REFUSALS = ("not a host", "old attempt", "full", "unknown run")
"""Why a node keeps no fragment for somebody; fit for a metric's label."""
