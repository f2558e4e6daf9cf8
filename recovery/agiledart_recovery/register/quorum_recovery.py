"""Recovery of a run whose majority of voters is lost for ever, at an admin's command: the value and the voters. Pure functions.

    all nodes report `RegisterStatus` → `check_quorum_recovery`: the newest value, the answering voters, why not
    → voter slots are made → `recovered_value` is ACCEPTed

The newest value is that of the highest (ballot, number) among the voters that are left. A host may have received one of a later
attempt or epoch: the lost voters had acknowledged that one, so it is newer. A value that they acknowledged and sent to no node
that is left is lost. The rows that they committed with it come again; the admin is informed of that.

A *configuration* keeps the lost side out if it was not dead but cut off. The first attempt and the first ballot of a
configuration are above all earlier ones. So every receiver refuses the old side by its usual comparison: hosts and frames by
the attempt, voters by the ballot. Within a configuration everything is as before. Two admins at once, on two sides of a
partition among the remaining nodes, make two runs: no register is left that could tell them apart. So the command must name
every lost voter, and none that answers.
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
    """Result of checking whether a run may continue without a lost majority.

    Args:
        refusal: why the run must not continue from this; empty: it may.
        value: the newest; None: no node knows one.
        there, silent: its voters that answer with their slots, and the others.
        is_from_host: it is known from a host, and by no voter.
    """

    refusal: str = ""
    value: RegisterValue | None = None
    there: tuple[Voter, ...] = ()
    silent: tuple[Voter, ...] = ()
    is_from_host: bool = False


def newest_of(statuses: RegisterStatuses) -> tuple[RegisterValue | None, bool]:
    """Return the newest value, and whether only hosts have it."""
    votes = [
        (status.accepted, status.value)
        for _, status in statuses
        if status.voter_slot is not None and status.value is not None
    ]
    best = max(votes, key=lambda vote: vote[0], default=(Stamp(), None))[1]
    acknowledged_value = max(
        (status.acknowledged_value for _, status in statuses if status.acknowledged_value is not None),
        key=_age,
        default=None,
    )
    if acknowledged_value is not None and (best is None or _age(acknowledged_value) > _age(best)):
        return acknowledged_value, True
    return best, False


def _age(value: RegisterValue) -> tuple[int, int, object]:
    return value.quorum_generation, value.attempt, value.committed


def check_quorum_recovery(
    run: RunId, statuses: RegisterStatuses, without: Collection[NodeId], name: Callable[[NodeId], str]
) -> QuorumRecoveryCheck:
    """Check whether a run may continue without these nodes, and from which value.

    Args:
        statuses: of all nodes that answer.
        without: nodes that the admin says are lost for ever.
        name: returns a node's name for people.
    """

    def names(nodes: Collection[NodeId]) -> str:
        return ", ".join(name(node) for node in nodes)

    value, is_from_host = newest_of(statuses)
    if value is None:
        return QuorumRecoveryCheck(
            f"no voter of {run.app} is left, and no host knows its register's value, so the end of its committed rows is unknown."
            "  Submit it again, with a checkpoint if one was kept"
        )
    voter_ids = {(peer.node, status.voter_slot): None for peer, status in statuses if status.voter_slot is not None}
    electors = electors_of(value)
    there = tuple(voter for voter in electors if voter.voter_id in voter_ids)
    silent = tuple(voter for voter in electors if voter.voter_id not in voter_ids)
    check = QuorumRecoveryCheck("", value, there, silent, is_from_host)
    answering = {peer.node: None for peer, _ in statuses}

    def refused(why: str) -> QuorumRecoveryCheck:
        return replace(check, refusal=why)

    if is_quorum(value, [voter.voter_id for voter in there]):
        return refused(
            f"a majority of its voters answers ({names([voter.peer.node for voter in there])}), so it continues by itself"
        )
    if back := [node for node in without if node in answering and node not in [voter.peer.node for voter in silent]]:
        return refused(f"{names(back)} answers, and is not lost")
    missing = {voter.peer.node: None for voter in silent}
    if strangers := [node for node in without if node not in missing]:
        return refused(
            f"{names(strangers)} does not vote on it; of its voters {names(missing)} do not answer, so name those"
        )
    if unnamed := [node for node in missing if node not in without]:
        return refused(
            f"{names(unnamed)} does not answer either, and was not named: name it if it is lost for ever, too; else wait"
            " until it is back"
        )
    if 1 + max(value.configuration, _highest(statuses).configuration) > MAX_CONFIGURATIONS:
        return refused(f"it was recovered {MAX_CONFIGURATIONS} times already, which is the limit")
    return check


def leader_of(run: RunId, found: QuorumRecoveryCheck, statuses: RegisterStatuses) -> Peer | None:
    """Return the node that carries the recovery out: a remaining voter, else a host, else any node; the nearest to the
    application's key.
    """
    value = found.value
    if value is None:
        return None
    peers = {peer.node: peer for peer, _ in statuses}
    voters = [peers[voter.peer.node] for voter in found.there]
    hosts = [peers[node] for node in value.plan.hosts if node in peers]
    eligible = voters or hosts or list(peers.values())
    return min(
        eligible, key=lambda peer: rank([Voter(candidate, 0) for candidate in eligible], run, peer.node), default=None
    )


def choose_new_voters(found: QuorumRecoveryCheck, statuses: RegisterStatuses, leader: Peer) -> tuple[Peer, ...]:
    """Return the new voters: the leader, remaining voters, others on hosts of their own; one voter where fewer than three hosts
    are.
    """
    peers = {peer.node: peer for peer, _ in statuses}
    left = [peers[voter.peer.node] for voter in found.there]
    hosts = list(found.value.plan.hosts) if found.value is not None else []
    others = sorted(peers.values(), key=lambda peer: (peer.node in hosts, peer.node))
    ranked = list({peer.node: peer for peer in (leader, *left, *others)}.values())
    by_host: dict[str, Peer] = {}
    for peer in ranked:
        by_host.setdefault(host_of(peer), peer)
    eligible = list(by_host.values()) if len(by_host) >= FEW_VOTERS else ranked
    return tuple(eligible[: VOTERS if len(by_host) >= VOTERS else FEW_VOTERS if len(eligible) >= FEW_VOTERS else 1])


def _highest(statuses: RegisterStatuses) -> Ballot:
    return max((status.promised for _, status in statuses if status.voter_slot is not None), default=Ballot())


def recovered_value(
    found: QuorumRecoveryCheck,
    statuses: RegisterStatuses,
    voters: tuple[Voter, ...],
    reason: str,
    signed_command: bytes = b"",
) -> tuple[RegisterValue, Ballot]:
    """Return the first value of the next configuration, and a ballot below all of that configuration's.

    `signed_command`: the admin's, which all other nodes verify.
    """
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
            # The next commit releases what only the previous epoch needs, and the lost voters may have sent that commit.
            # After a roll-back it says up to where sinks are committed.
            before=() if value.rolled_back_to is None else value.before,
            fallback_checkpoint=None,
            reason=reason[:400],
            left=tuple(left)[:MAX_EXCLUDED_VOTERS],
            signed_command=signed_command,
        ),
        Ballot(configuration * ROUNDS_PER_CONFIGURATION),
    )
