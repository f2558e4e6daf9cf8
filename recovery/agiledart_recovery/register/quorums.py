"""Quorums: majorities, the order of voters, and the successor of a lost voter. Pure functions."""

from collections.abc import Collection, Iterable, Sequence

from agiledart_kernel.node_id import NodeId, key_of_name, ring_distance
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.names import RunId, Voter
from agiledart_recovery.wire.register_value import RegisterValue

VoterId = tuple[NodeId, int]


def is_majority(voters: Sequence[Voter], voter_ids: Collection[VoterId]) -> bool:
    """Return whether more than half of the voters, slot for slot, are among `voter_ids`."""
    return 2 * sum(voter.voter_id in voter_ids for voter in voters) > len(voters)


def is_quorum(value: RegisterValue, voter_ids: Collection[VoterId]) -> bool:
    """Return whether these may read or write a value: a majority of its voters and, when it changes them, of the old ones."""
    return is_majority(value.voters, voter_ids) and (not value.old_voters or is_majority(value.old_voters, voter_ids))


def key_of(run: RunId) -> NodeId:
    """Return the application's key: the live voter nearest to it is the first to coordinate."""
    return key_of_name("app", run.app)


def rank(voters: Iterable[Voter], run: RunId, node: NodeId) -> int:
    """Return how many voters are nearer to the application's key than a node."""
    key = key_of(run)
    mine = (ring_distance(node, key), node)
    return sum((ring_distance(voter.peer.node, key), voter.peer.node) < mine for voter in voters)


def host_of(peer: Peer) -> str:
    """Return the physical machine of a peer; a node that names none counts as its own machine."""
    return peer.host or peer.node.hex


def successor_of(gone: Voter, voters: Sequence[Voter], candidates: Sequence[Peer]) -> Peer | None:
    """Return the node that takes a lost voter's slot: the first candidate that is no voter and shares no host with remaining
    voters.
    """
    stay = [voter.peer for voter in voters if voter.voter_id != gone.voter_id]
    hosts = [host_of(peer) for peer in stay]
    nodes = [voter.peer.node for voter in voters]
    return next((peer for peer in candidates if peer.node not in nodes and host_of(peer) not in hosts), None)
