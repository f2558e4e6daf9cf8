"""What keeps a node from being emptied: what runs there and can run nowhere else. In words, with what would help."""

from collections.abc import Callable, Iterable

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_kernel.node_id import NodeId
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.recovery.change_plans import stage_plan_of
from agiledart_recovery.wire.register_value import InstanceRole, RegisterValue, RunState

MAX_OBSTACLES_SHOWN = 8
"""Obstacles that one sentence names."""


def obstacles(
    table: Iterable[HostedApplication], value_of: Callable[[Key], RegisterValue | None], me: NodeId
) -> list[str]:
    """One line for each application of which something cannot leave. One that is only being deployed says nothing yet."""
    found = []
    for hosted in table:
        if not hosted.reserved or hosted.is_closing:
            continue
        name = hosted.part.application
        if not hosted.part.by_epoch:
            found.append(
                f"{name} is not saved by epochs, so what it runs there can't move, and it would fail: stop it"
                f" (agiledart stop {name}), or submit it with {SAVING}"
            )
        elif (value := value_of(hosted.key)) is not None and (staying := _immovable_instances(value, me)):
            found.append(f"{name} {staying}")
    return found


def runs_losing_majority(values: Iterable[RegisterValue], me: NodeId, is_alive: Callable[[NodeId], bool]) -> list[str]:
    """One line for each run whose register would have no majority of its voters without this node."""
    found = []
    for value in values:
        others = [voter for voter in value.voters if voter.peer.node != me and is_alive(voter.peer.node)]
        if value.state is RunState.RUNNING and 2 * len(others) <= len(value.voters):
            found.append(
                f"{value.run.app} would lose the majority of its voters with it: wait a minute, until another node has the seat of"
                " one that is gone, stop it, or say --stay"
            )
    return found


def refusal(me: str, found: list[str]) -> str:
    """Why a node is not emptied."""
    more = f"; and {len(found) - MAX_OBSTACLES_SHOWN} more" if len(found) > MAX_OBSTACLES_SHOWN else ""
    return f"{me} can't be emptied, and nothing was begun: {'; '.join(found[:MAX_OBSTACLES_SHOWN])}{more}."


def _immovable_instances(value: RegisterValue, me: NodeId) -> str:
    """What of a run stays where it is."""
    stages = stage_plan_of(value).stages
    reasons: dict[str, None] = {}
    for each in value.plan.at(me):
        stage = stages[int(each.instance.stage)]
        if each.role is not InstanceRole.STAGE and each.is_pinned:
            reasons[
                f"has its {each.role} {stage.name} there, which stays where its data are: stop it"
                f' (agiledart stop {value.run.app}), or submit it with on_{each.role}_lost="move"'
            ] = None
        elif each.role is InstanceRole.STAGE and stage.at:
            reasons[f"has {stage.name} there, pinned to {stage.at} by its topology: submit it without at="] = None
    return "; and ".join(reasons)
