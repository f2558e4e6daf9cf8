"""Obstacles to draining a node: instances that cannot run on another node, each with its remedy."""

from collections.abc import Callable, Iterable

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_kernel.node_id import NodeId
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.recovery.change_plans import stage_plan_of
from agiledart_recovery.wire.register_value import InstanceRole, RegisterValue, RunState

MAX_OBSTACLES_SHOWN = 8
"""Obstacles that one sentence lists."""


def obstacles(
    table: Iterable[HostedApplication], value_of: Callable[[Key], RegisterValue | None], me: NodeId
) -> list[str]:
    """Return one line for each application that cannot leave this node completely; none for one that is still being deployed."""
    lines = []
    for hosted in table:
        if not hosted.reserved or hosted.is_closing:
            continue
        name = hosted.part.application
        if not hosted.part.by_epoch:
            lines.append(
                f"{name} is not saved by epochs, so its instances there can't move, and it would fail: stop it"
                f" (agiledart stop {name}), or submit it with {SAVING}"
            )
        elif (value := value_of(hosted.key)) is not None and (staying := _immovable_instances(value, me)):
            lines.append(f"{name} {staying}")
    return lines


def runs_losing_majority(values: Iterable[RegisterValue], me: NodeId, is_alive: Callable[[NodeId], bool]) -> list[str]:
    """Return one line for each run whose register would lose the majority of its voters with this node."""
    lines = []
    for value in values:
        others = [voter for voter in value.voters if voter.peer.node != me and is_alive(voter.peer.node)]
        if value.state is RunState.RUNNING and 2 * len(others) <= len(value.voters):
            lines.append(
                f"{value.run.app} would lose the majority of its voters with it: wait a minute, until another node has replaced a"
                " lost voter; or stop it, or use --stay"
            )
    return lines


def refusal(me: str, lines: list[str]) -> str:
    """Return why a node is not drained."""
    more = f"; and {len(lines) - MAX_OBSTACLES_SHOWN} more" if len(lines) > MAX_OBSTACLES_SHOWN else ""
    return f"{me} can't be emptied, and nothing was begun: {'; '.join(lines[:MAX_OBSTACLES_SHOWN])}{more}."


def _immovable_instances(value: RegisterValue, me: NodeId) -> str:
    """Return why instances of a run must stay on this node; empty when all can move."""
    stages = stage_plan_of(value).stages
    reasons: dict[str, None] = {}
    for assignment in value.plan.at(me):
        stage = stages[int(assignment.instance.stage)]
        if assignment.role is not InstanceRole.STAGE and assignment.is_pinned:
            reasons[
                f"has its {assignment.role} {stage.name} there, which stays where its data are: stop it"
                f' (agiledart stop {value.run.app}), or submit it with on_{assignment.role}_lost="move"'
            ] = None
        elif assignment.role is InstanceRole.STAGE and stage.at:
            reasons[f"has {stage.name} there, pinned to {stage.at} by its topology: submit it without at="] = None
    return "; and ".join(reasons)
