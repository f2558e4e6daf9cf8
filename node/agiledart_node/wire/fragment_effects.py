"""Effects and events between a node and its driver about task snapshots saved here, and fragments stored for other nodes.

Bytes stay with the driver: it encrypts a snapshot under the run's key, splits it, sends fragments to replica nodes, fetches them,
reassembles them and checks hashes. The node decides which fragments go where.
"""

from agiledart_kernel.machine import Effect, Event
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot


class StoreFragment(Effect, frozen=True, gc=False):
    """Send one fragment of a local snapshot to a replica node. `Completed` when it is on that node's disk, else `Failed`.

    Args:
        secret: key of the run.
        attempt: of the host that stores it.
    """

    request: int
    replica_node: Peer
    key: FragmentKey
    snapshot: InstanceSnapshot
    secret: bytes
    attempt: int


class FetchFragment(Effect, frozen=True, gc=False):
    """Fetch the bytes `offset … offset + length` of a replica node's fragment; all of them, with a hash check, when `length` is 0.

    `Completed.result`: bytes.
    """

    request: int
    replica_node: Peer
    key: FragmentKey
    snapshot: InstanceSnapshot
    offset: int
    length: int


class FindSnapshot(Effect, frozen=True, gc=False):
    """Check whether this node's disk has a whole snapshot. `Completed.result`: bool.

    Args:
        content: the whole snapshot, where the register holds it; it is written to the disk if it is not there.
    """

    request: int
    run: RunId
    digest: bytes
    content: bytes = b""


class RebuildSnapshot(Effect, frozen=True, gc=False):
    """Rebuild a snapshot on this node's disk, as if it had been saved here. `Failed`: the result is not the saved snapshot.

    Args:
        key: of any of its fragments.
        stripes: index of a fragment → its bytes, for each stripe; with more than m of them, one may be wrong.
        secret: key of the run.
    """

    request: int
    key: FragmentKey
    snapshot: InstanceSnapshot
    stripes: tuple[dict[int, bytes], ...]
    secret: bytes


class DropStoredFragments(Effect, frozen=True, gc=False):
    """Delete these stored fragments, which are not needed any more."""

    keys: tuple[FragmentKey, ...]


class FragmentDecision(Effect, frozen=True, gc=False):
    """Answer to `FragmentOffered`: reason of a refusal, one of `REFUSALS`, and a sentence; empty when the fragment is accepted."""

    request: int
    refused: str = ""
    text: str = ""


class FragmentOffered(Event, frozen=True, gc=False):
    """A peer offers a fragment to store. Answered by `FragmentDecision`; `request` is the driver's own number.

    `attempt`: of the peer; a fragment that is created again belongs to a snapshot of an older attempt.
    """

    request: int
    sender: Peer
    key: FragmentKey
    attempt: int


class FragmentStored(Event, frozen=True, gc=False):
    """A fragment of another node is on this node's disk."""

    key: FragmentKey
    owner: Peer


REFUSALS = ("not a host", "old attempt", "full", "unknown run")
"""Reasons for which a node refuses a fragment; fit for a metric's label."""
