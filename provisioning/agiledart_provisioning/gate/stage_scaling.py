"""Stages that a gate scales under the policies `btu` and `threshold`: their numbers follow the policy's starts and stops."""

from collections.abc import Iterable, Sequence

from agiledart_provisioning.actions import Action, ActionKind
from agiledart_provisioning.gate.gate_messages import ScaleStageTo, StageSeen
from agiledart_provisioning.state import ProvisioningState

STEPS = {ActionKind.START: 1, ActionKind.STOP: -1}


def changed_numbers(
    actions: Iterable[Action], state: ProvisioningState, stages: Sequence[StageSeen]
) -> list[ScaleStageTo]:
    """Return the new numbers of instances after a policy's round, within the limits of each stage.

    A start on a host that is only being leased waits until it runs: the policy decides it again then. A stage that still scales by
    itself gets its present number, and keeps it from then on. Placement chooses the node of an instance, not the policy.
    """
    running = {host.name for host in state.hosts if host.is_running}
    by_name = {stage.name: stage for stage in stages}
    change = dict.fromkeys(by_name, 0)
    why: dict[str, str] = {}
    for action in actions:
        if action.kind in STEPS and action.host in running and action.type_name in change:
            change[action.type_name] += STEPS[action.kind]
            why.setdefault(action.type_name, action.why)
    numbers = []
    for name, stage in by_name.items():
        present = stage.parallelism
        number = max(stage.low, min(stage.high, present + change[name]))
        if number != present:
            numbers.append(ScaleStageTo(name, number, why[name]))
        elif not stage.keeps_number:
            numbers.append(ScaleStageTo(name, number, "the gate decides its number from now on", is_first=True))
    return numbers
