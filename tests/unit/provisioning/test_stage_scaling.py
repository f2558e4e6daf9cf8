"""Policies with numbers of instances on a live mesh: a gate scales its stages, leaves others alone, and leases."""

import msgspec
import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Completed, Effect, TimerFired
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.actions import Action, ActionKind
from agiledart_provisioning.gate.gate_messages import (
    DrainLeased,
    LeaseHost,
    LedgerRead,
    NodeSeen,
    ScaleStageTo,
    StageSeen,
    ViewSeen,
    WriteEntry,
)
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState
from agiledart_provisioning.gate.lease_gate import LeaseGate
from agiledart_provisioning.gate.network_state import INSTANCE, network_state
from agiledart_provisioning.gate.stage_scaling import changed_numbers
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.registry import POLICIES, policy_named

UNIT = 600 * SECOND
NOW = 1_000 * UNIT
SETTINGS = GateSettings("act", 3, 10_000_000, "small", 100_000, UNIT, capacity=4)
STAGE = StageSeen("app/work", 100.0, 500.0, (500.0,), 80.0, 2, 1, 6, {"a1": 2}, keeps_number=True)


def effects(
    policy: str, stages: tuple[StageSeen, ...], capacity: int, mode: str = "act", **view: object
) -> list[Effect]:
    """The effects of a gate's first round, with one node of the user that has this capacity."""
    settings = msgspec.structs.replace(SETTINGS, mode=mode)
    made = policy_named(policy, ProvisioningSettings(window_s=180.0))
    gate = LeaseGate("g", "net", settings, made, RandomStream(1, "g"), releases_early=policy == "threshold")
    entries = view.pop("entries", ())
    gate.step(LedgerRead(entries), NOW)  # type: ignore[arg-type]
    nodes = (NodeSeen("a1", 2, capacity), *view.pop("nodes", ()))
    gate.step(ViewSeen(nodes, stages=stages, **view), NOW)  # type: ignore[arg-type]
    found = gate.step(TimerFired("round"), NOW + SECOND)
    for effect in list(found):
        if isinstance(effect, WriteEntry):
            found += gate.step(Completed(effect.request), NOW + SECOND)
    return found


def numbers(found: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.name, effect.number) for effect in found if isinstance(effect, ScaleStageTo)]


def leases(found: list[Effect]) -> int:
    return sum(isinstance(effect, LeaseHost) for effect in found)


@pytest.mark.parametrize("policy", ["btu", "threshold"])
def test_a_delayed_stage_gets_an_instance_where_there_is_room_and_else_a_host_is_leased(policy: str) -> None:
    with_room = effects(policy, (STAGE,), 8)
    assert (numbers(with_room), leases(with_room)) == ([("app/work", 3)], 0)
    without = effects(policy, (STAGE,), 2)
    assert (numbers(without), leases(without)) == ([], 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gate_that_advises_scales_and_leases_nothing(policy: str) -> None:
    found = effects(policy, (STAGE,), 2, mode="advise", waiting=("app waits",))
    assert (numbers(found), leases(found)) == ([], 0)


def test_a_stage_that_scales_by_itself_keeps_its_number_from_now_on() -> None:
    calm = msgspec.structs.replace(STAGE, queue=5.0, duration_ms=50.0, durations_ms=(50.0,), keeps_number=False)
    (effect,) = (effect for effect in effects("btu", (calm,), 8) if isinstance(effect, ScaleStageTo))
    assert effect == ScaleStageTo("app/work", 2, "the gate decides its number from now on", is_first=True)


def test_work_that_waits_for_capacity_opens_a_lease_under_each_policy() -> None:
    for policy in POLICIES:
        assert leases(effects(policy, (), 2, waiting=("app waits",))) == 1


def test_limits_of_a_stage_bound_its_number_and_starts_on_planned_hosts_wait() -> None:
    state = network_state((NodeSeen("a1", 2, 8),), (), (), SETTINGS, NOW, (STAGE,))
    start, later = (Action(ActionKind.START, host, "late", "app/work") for host in ("a1", "new-1"))
    at_most = msgspec.structs.replace(STAGE, high=2)
    assert [change.number for change in changed_numbers([start, start, later], state, [STAGE])] == [4]
    assert changed_numbers([start, later], state, [at_most]) == []
    stop = Action(ActionKind.STOP, "a1", "idle", "app/work")
    assert [change.number for change in changed_numbers([stop] * 5, state, [STAGE])] == [1]


def test_other_instances_count_and_no_policy_starts_or_ends_them() -> None:
    state = network_state(
        (NodeSeen("a1", 5, 8), NodeSeen("a2", 3, 3)), (), (), SETTINGS, NOW, (STAGE,), {"app/work": 4}
    )
    assert [dict(host.instances) for host in state.hosts] == [{INSTANCE.name: 3, "app/work": 2}, {INSTANCE.name: 3}]
    assert state.type_named("app/work").scalings == 4
    for policy in ("btu", "threshold"):
        made = policy_named(policy, ProvisioningSettings(window_s=180.0))
        assert all(action.type_name != INSTANCE.name for action in made.decide(state, RandomStream(1, "g")))


def test_the_baseline_drains_an_empty_host_at_once_and_the_others_only_in_the_window() -> None:
    entry = LeaseEntry(
        "g-1", "g", "agiledart-net-g-1", "small", 100_000, UNIT, NOW, LeaseState.JOINED, host_id="h1", node="b1"
    )
    leased = NodeSeen("b1", 0, 4, lease_id="g-1", token_lease="g-1", gate="g", renewed_ns=NOW, host_id="h1")
    drained = {
        policy: any(
            isinstance(effect, DrainLeased) for effect in effects(policy, (), 8, entries=(entry,), nodes=(leased,))
        )
        for policy in POLICIES
    }
    assert drained == {"hosts": False, "btu": False, "threshold": True}
