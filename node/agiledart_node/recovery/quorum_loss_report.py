"""Text report of what is left of a run that lost its majority of voters: up to where rows are committed, and what is lost."""

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
    LossPolicy.FAIL: "the application fails, as its topology demands",
    LossPolicy.EMPTY: "it begins with an empty state, as its topology demands",
    LossPolicy.PREVIOUS: "the application waits until enough of them are back, because the epoch before may need lost fragments",
}


def voters_named(value: RegisterValue | None, words: Collection[str], name: Names) -> list[NodeId]:
    """Return the voters of a run that a user named by name or id. Raises CommandRefused: an unknown voter."""
    electors = electors_of(value) if value is not None else ()
    by_name: dict[str, NodeId] = {}
    for voter in electors:
        node = voter.peer.node
        by_name |= dict.fromkeys((voter.peer.name, name(node), node.hex, node.short), node)
    unknown = [word for word in words if word not in by_name]
    if value is not None and unknown:
        voters = ", ".join(name(voter.peer.node) for voter in electors)
        raise CommandRefused(
            f"{', '.join(unknown)} does not vote on {value.run.app}. Its voters: {voters}. Name those that are gone.", 2
        )
    return [by_name[word] for word in words if word in by_name]


def missing_reports(app: str, value: RegisterValue | None, refusals: Mapping[NodeId, str], name: Names) -> str:
    """Return why agents that refuse to report hold a recovery up, and which; empty: their reports are not needed.

    Needed are reports of nodes that vote on the run or host a part of it; while no node reports the register, every node may be
    one.
    """
    needed = dict.fromkeys(refusals)
    if value is not None:
        about = {**{voter.peer.node: None for voter in electors_of(value)}, **value.plan.hosts}
        needed = {node: None for node in refusals if node in about}
    if not needed:
        return ""
    names, first = ", ".join(name(node) for node in needed), next(iter(needed))
    verb, has = ("does", "it has") if len(needed) == 1 else ("do", "they have")
    return f"{names} {verb} not report what {has} of {app}: {refusals[first]}"


def recovery_notes(survey: QuorumRecoveryCheck, there: Collection[NodeId], name: Names) -> list[str]:
    """Return what an admin must know before and after recovering a run without its lost voters.

    Args:
        survey: register and hosts of the run, as reported by the nodes that answered.
        there: nodes that answered.
    """
    value = survey.value
    assert value is not None, "nothing is left of it"
    stages = _PLAN.decode(value.plan.body).stages if value.plan.body else ()
    stage_names = {str(stage.index): stage.name for stage in stages}
    sources = ", ".join(name(voter.peer.node) for voter in survey.there)
    source = f"as {sources} knows from its register" if sources and not survey.is_from_host else "as its hosts know"
    warnings = [
        f"it goes on from epoch {value.committed.epoch}, {source}",
        "rows that the lost voters committed after that epoch come again: their readers see them twice",
    ]
    for assignment in value.plan.assignments:
        stage_name = stage_names.get(assignment.instance.stage, assignment.instance.stage)
        if assignment.host.node not in there:
            warnings += _of_lost(value, assignment, stage_name, there, name)
    return list(dict.fromkeys(warnings))


def _of_lost(
    value: RegisterValue, assignment: Assignment, stage_name: str, there: Collection[NodeId], name: Names
) -> list[str]:
    """Return what becomes of an instance whose node is lost."""
    host = name(assignment.host.node)
    if assignment.is_pinned:
        then = "fails, as its topology demands" if assignment.if_lost is LossPolicy.FAIL else "waits for it"
        rows = " and its rows cannot be read until then" if assignment.role is InstanceRole.SINK else ""
        return [f"the {assignment.role} {stage_name} is bound to {host}, so the application {then}{rows}"]
    gone = missing_replica_nodes(value, assignment, lambda node: node in there)
    if gone:
        lacking = ", ".join(name(node) for node in gone)
        return [
            f"the state of {stage_name}.{assignment.instance.index}, which ran on {host}, cannot be rebuilt: {lacking} had it;"
            f" {_THEN[assignment.if_lost]}"
        ]
    return []
