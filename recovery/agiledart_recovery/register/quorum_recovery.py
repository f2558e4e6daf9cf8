"""A majority of a run's voters is gone for ever, an admin says: what the run goes on from, and who votes then. Pure functions.

    everybody tells its `RegisterStatus` → `judged`: the newest value, who answers, why not → seats are made → `regained` is ACCEPTed

The newest value is that of the highest (ballot, number) among the voters that are left, or one that a host was told, if that is
of a later life or epoch: it was acknowledged by the lost ones. What they acknowledged and told nobody who is left is lost, and the
rows that they committed with it come again: that is what the admin is told.

An *era* keeps the lost side out if it was not dead but cut off. The first life and the first ballot of an era are above all of the
eras before, so every receiver refuses the old side by what it compares anyway: hosts and frames by the life, voters by the ballot.
Within an era everything is as before. Two admins at once, on two sides of a cut among those that are left, make two runs: no
register is left that could tell them apart, so the verb asks that every lost voter is named and none that answers.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import (
    ATTEMPTS_PER_CONFIGURATION,
    MAX_CONFIGURATIONS,
    MAX_EXCLUDED_VOTERS,
    ROUNDS_PER_CONFIGURATION,
)
from agiledart_recovery.register.proposer import electors_of
from agiledart_recovery.register.quorums import host_of, is_quorum, rank
from agiledart_recovery.wire.names import Ballot, RunId, Stamp, Voter
from agiledart_recovery.wire.register_status import RegisterStatus
from agiledart_recovery.wire.register_value import RegisterValue

FEW_VOTERS, VOTERS = 3, 5

RegisterStatuses = Sequence[tuple[Peer, RegisterStatus]]


@dataclass(frozen=True, slots=True)
class QuorumRecoveryCheck:
    """What those that are left know.

    Args:
        refusal: why the run is not to go on from this; empty: it may.
        value: the newest; None: nobody knows one.
        there, silent: its voters that answer under their seats, and the others.
        is_told: it is known from a host, and by no voter.
    """

    refusal: str = ""
    value: RegisterValue | None = None
    there: tuple[Voter, ...] = ()
    silent: tuple[Voter, ...] = ()
    is_from_host: bool = False


def newest_of(statuses: RegisterStatuses) -> tuple[RegisterValue | None, bool]:
    """The newest value, and whether only hosts have it."""
    votes = [
        (each.accepted, each.value) for _, each in statuses if each.voter_slot is not None and each.value is not None
    ]
    best = max(votes, key=lambda vote: vote[0], default=(Stamp(), None))[1]
    acknowledged_value = max(
        (each.acknowledged_value for _, each in statuses if each.acknowledged_value is not None), key=_age, default=None
    )
    if acknowledged_value is not None and (best is None or _age(acknowledged_value) > _age(best)):
        return acknowledged_value, True
    return best, False


def _age(value: RegisterValue) -> tuple[int, int, object]:
    return value.quorum_generation, value.attempt, value.committed


def check_quorum_recovery(
    run: RunId, statuses: RegisterStatuses, without: Collection[NodeId], name: Callable[[NodeId], str]
) -> QuorumRecoveryCheck:
    """Whether a run may go on without these, and from what.

    Args:
        standings: of everybody who answers.
        without: whom the admin says to be gone for ever.
        name: of a node, for people.
    """

    def names(nodes: Collection[NodeId]) -> str:
        return ", ".join(name(node) for node in nodes)

    value, is_from_host = newest_of(statuses)
    if value is None:
        return QuorumRecoveryCheck(
            f"no voter of {run.app} is left, and no host remembers what its register said: nothing says up to where its rows"
            " count. Submit it again, with a checkpoint if one was kept"
        )
    voter_ids = {(peer.node, each.voter_slot): None for peer, each in statuses if each.voter_slot is not None}
    electors = electors_of(value)
    there = tuple(voter for voter in electors if voter.voter_id in voter_ids)
    silent = tuple(voter for voter in electors if voter.voter_id not in voter_ids)
    found = QuorumRecoveryCheck("", value, there, silent, is_from_host)
    answering = {peer.node: None for peer, _ in statuses}

    def refused(why: str) -> QuorumRecoveryCheck:
        return replace(found, refusal=why)

    if is_quorum(value, [voter.voter_id for voter in there]):
        return refused(
            f"a majority of its voters answers ({names([voter.peer.node for voter in there])}), so it goes on by itself"
        )
    if back := [node for node in without if node in answering and node not in [each.peer.node for each in silent]]:
        return refused(f"{names(back)} answers, and is not lost")
    missing = {voter.peer.node: None for voter in silent}
    if strangers := [node for node in without if node not in missing]:
        return refused(
            f"{names(strangers)} does not vote on it; of its voters {names(missing)} do not answer, so name those"
        )
    if unnamed := [node for node in missing if node not in without]:
        return refused(
            f"{names(unnamed)} does not answer either, and was not named: where it is gone for ever, too, name it; else wait"
            " until it is back"
        )
    if 1 + max(value.configuration, _highest(statuses).configuration) > MAX_CONFIGURATIONS:
        return refused(f"it was recovered {MAX_CONFIGURATIONS} times")
    return found


def leader_of(run: RunId, found: QuorumRecoveryCheck, statuses: RegisterStatuses) -> Peer | None:
    """Who carries it out: a voter that is left, else a host, else anybody; the nearest to the application's key."""
    value = found.value
    if value is None:
        return None
    peers = {peer.node: peer for peer, _ in statuses}
    voters = [peers[voter.peer.node] for voter in found.there]
    hosts = [peers[node] for node in value.plan.hosts if node in peers]
    some = voters or hosts or list(peers.values())
    return min(some, key=lambda peer: rank([Voter(one, 0) for one in some], run, peer.node), default=None)


def choose_new_voters(found: QuorumRecoveryCheck, statuses: RegisterStatuses, leader: Peer) -> tuple[Peer, ...]:
    """Who votes then: who carries it out, voters that are left, others on hosts of their own; one where fewer than three are."""
    peers = {peer.node: peer for peer, _ in statuses}
    left = [peers[voter.peer.node] for voter in found.there]
    hosts = list(found.value.plan.hosts) if found.value is not None else []
    others = sorted(peers.values(), key=lambda peer: (peer.node in hosts, peer.node))
    signed_command = list({peer.node: peer for peer in (leader, *left, *others)}.values())
    apart: dict[str, Peer] = {}
    for peer in signed_command:
        apart.setdefault(host_of(peer), peer)
    some = list(apart.values()) if len(apart) >= FEW_VOTERS else signed_command
    return tuple(some[: VOTERS if len(apart) >= VOTERS else FEW_VOTERS if len(some) >= FEW_VOTERS else 1])


def _highest(statuses: RegisterStatuses) -> Ballot:
    return max((each.promised for _, each in statuses if each.voter_slot is not None), default=Ballot())


def recovered_value(
    found: QuorumRecoveryCheck,
    statuses: RegisterStatuses,
    voters: tuple[Voter, ...],
    reason: str,
    signed_command: bytes = b"",
) -> tuple[RegisterValue, Ballot]:
    """The first value of the next era, and a ballot below all of that era's. `order`: the admin's, which all others check."""
    assert found.value is not None, found
    value = found.value
    configuration = 1 + max(value.configuration, _highest(statuses).configuration)
    left = dict.fromkeys((*(voter.peer.node for voter in found.silent), *value.left))
    for voter in voters:
        left.pop(voter.peer.node, None)
    return (
        msgspec.structs.replace(
            value,
            quorum_generation=value.quorum_generation + 1,
            attempt=configuration * ATTEMPTS_PER_CONFIGURATION,
            voters=voters,
            old_voters=(),
            # What only the epoch before needs is let go with the next commit, which the lost ones may have told; of a run that went
            # back there it says up to where sinks count.
            before=() if value.rolled_back_to is None else value.before,
            fallback_checkpoint=None,
            reason=reason[:400],
            left=tuple(left)[:MAX_EXCLUDED_VOTERS],
            signed_command=signed_command,
        ),
        Ballot(configuration * ROUNDS_PER_CONFIGURATION),
    )
