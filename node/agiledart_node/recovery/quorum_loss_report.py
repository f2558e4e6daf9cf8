"""What is left of a run whose majority of voters is gone, in words: up to where its rows count, and what cannot be rebuilt."""

from collections.abc import Callable, Collection, Mapping

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.node_id import NodeId
from agiledart_node.context.node_context import CommandRefused
from agiledart_recovery.attempts.replanning import missing_replica_nodes
from agiledart_recovery.register.proposer import electors_of
from agiledart_recovery.register.quorum_recovery import QuorumRecoveryCheck
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, LossPolicy, RegisterValue

_PLAN: Codec[StagePlan] = Codec(StagePlan)

Names = Callable[[NodeId], str]

_THEN = {
    LossPolicy.WAIT: "the application waits until enough of them are back",
    LossPolicy.FAIL: "the application fails, as it was told to",
    LossPolicy.EMPTY: "it begins with an empty state, as it was told to",
    LossPolicy.PREVIOUS: "the application waits until enough of them are back, for what the epoch before needs may be gone",
}


def voters_named(value: RegisterValue | None, words: Collection[str], name: Names) -> list[NodeId]:
    """Voters of a run by their names or ids, of which most are gone. Raises CommandRefused."""
    electors = electors_of(value) if value is not None else ()
    called: dict[str, NodeId] = {}
    for voter in electors:
        node = voter.peer.node
        called |= dict.fromkeys((voter.peer.name, name(node), node.hex, node.short), node)
    unknown = [word for word in words if word not in called]
    if value is not None and unknown:
        voters = ", ".join(name(voter.peer.node) for voter in electors)
        raise CommandRefused(
            f"{', '.join(unknown)} does not vote on {value.run.app}. Its voters: {voters}. Name those that are gone.", 2
        )
    return [called[word] for word in words if word in called]


def missing_reports(app: str, value: RegisterValue | None, refusals: Mapping[NodeId, str], name: Names) -> str:
    """Why agents that refuse to tell what they have hold a recovery up, and which; empty: they are not needed.

    Needed is who votes on it or runs something of it; where nobody tells of the register, anybody may.
    """
    needed = dict.fromkeys(refusals)
    if value is not None:
        about = {**{voter.peer.node: None for voter in electors_of(value)}, **value.plan.hosts}
        needed = {node: None for node in refusals if node in about}
    if not needed:
        return ""
    who, first = ", ".join(name(node) for node in needed), next(iter(needed))
    verb, has = ("does", "it has") if len(needed) == 1 else ("do", "they have")
    return f"{who} {verb} not tell what {has} of {app}: {refusals[first]}"


def recovery_notes(found: QuorumRecoveryCheck, there: Collection[NodeId], name: Names) -> list[str]:
    """What an admin is to know before, and after.

    Args:
        there: nodes that answer.
    """
    value = found.value
    assert value is not None, "nothing is left of it"
    stages = _PLAN.decode(value.plan.body).stages if value.plan.body else ()
    stage_names = {str(stage.index): stage.name for stage in stages}
    whose = ", ".join(name(voter.peer.node) for voter in found.there)
    how = f"as {whose} knows from its register" if whose and not found.is_from_host else "as its hosts were told"
    warnings = [
        f"it goes on from epoch {value.committed.epoch}, {how}",
        "rows that the lost voters committed after that epoch come again: who has read them sees them twice",
    ]
    for each in value.plan.assignments:
        stage_name = stage_names.get(each.instance.stage, each.instance.stage)
        if each.host.node not in there:
            warnings += _of_lost(value, each, stage_name, there, name)
    return list(dict.fromkeys(warnings))


def _of_lost(
    value: RegisterValue, each: Assignment, stage_name: str, there: Collection[NodeId], name: Names
) -> list[str]:
    """What becomes of what ran on a node that is gone."""
    host = name(each.host.node)
    if each.is_pinned:
        then = "fails, as it was told to" if each.if_lost is LossPolicy.FAIL else "waits for it"
        rows = " and its rows cannot be read until then" if each.role is InstanceRole.SINK else ""
        return [f"the {each.role} {stage_name} is bound to {host}, so the application {then}{rows}"]
    gone = missing_replica_nodes(value, each, lambda node: node in there)
    if gone:
        lacking = ", ".join(name(node) for node in gone)
        return [
            f"the state of {stage_name}.{each.instance.index}, which ran on {host}, cannot be rebuilt: {lacking} had it;"
            f" {_THEN[each.if_lost]}"
        ]
    return []
