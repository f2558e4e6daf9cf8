"""The controller of an application: when it decides, what it asks for, and what it does with a refusal."""

from dataclasses import dataclass, field, replace

import pytest

from agiledart_scaling.ask_policy import ask
from agiledart_scaling.controller import Controller, ControllerState, Interval
from agiledart_scaling.kinds.bandwidth import LinkLoad
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.one_pass import ChangeKind, StageState
from agiledart_scaling.policies.secant import Secant
from agiledart_scaling.scaling_policy import ScalingDecision, ScalingPolicy

RATE = 100.0


def controller(policy: ScalingPolicy | None = None) -> Controller:
    chosen = policy or Secant()
    return Controller(lambda measures, limits, memory: ask("p", chosen, measures, limits, memory, lambda: 0))


@dataclass
class Fluid:
    """A chain of stages that are as fast as their instances; rows wait as a fluid does."""

    instances: dict[str, int]
    limits: Limits = field(default_factory=lambda: Limits(1, 8))
    held: tuple[str, ...] = ()
    queue: dict[str, float] = field(default_factory=dict)

    def interval(self, offered: float, running_change: str = "", quota: int | None = None) -> Interval:
        states = []
        for name, number in self.instances.items():
            waits = max(0.0, self.queue.get(name, 0.0) + 5 * (offered - number * RATE))
            before, self.queue[name] = self.queue.get(name, 0.0), waits
            backlog = tuple(before + (waits - before) * second / 5 for second in range(1, 6))
            even = (1 / number,) * number
            measures = StageMeasures((RATE,) * number, even, (offered,) * 5, backlog)
            rates = (RATE,) * number
            states.append(StageState(name, self.limits, measures, measured=rates, keeps_number=name in self.held))
        return Interval(states, self.instances, running_change, quota)


def test_fourfold_rate_is_one_request_for_all_stages_and_shrinking_is_slow() -> None:
    world, one = Fluid({"a": 1, "b": 1}), controller()
    assert one.ended(world.interval(60)) == ()

    orders = one.ended(world.interval(240))

    assert [(each.stage, each.kind, each.instances) for each in orders] == [
        ("a", ChangeKind.GROW, 4),
        ("b", ChangeKind.GROW, 4),
    ]
    one.taken()
    assert one.step is ControllerState.CHANGING
    assert one.ended(world.interval(240)) == (), "not while it changes"
    world.instances = {"a": 4, "b": 4}
    one.finalised()
    assert one.ended(world.interval(240)) == (), "nor in the interval after"
    assert "does not count" in one.statuses["a"].waits_for
    counted = 0
    while not (orders := one.ended(world.interval(60))):
        counted += 1
        assert counted < 30
    assert counted >= 11
    assert [(each.stage, each.kind, each.instances) for each in orders] == [
        ("a", ChangeKind.SHRINK, 1),
        ("b", ChangeKind.SHRINK, 1),
    ]


def test_changes_by_others_and_the_following_interval_are_waited_for() -> None:
    world, one = Fluid({"a": 1}), controller()

    assert one.ended(world.interval(240, "it is being brought back")) == ()
    assert one.ended(world.interval(240)) == ()
    assert one.ended(world.interval(240)) != ()


def _full_link(intervals: int, running_change: str) -> list[ChangeKind]:
    """Return what a controller asks for while the links of a stage with state are full, and a change of others goes on."""
    world, one, kinds = Fluid({"a": 2}), controller(), list[ChangeKind]()
    for _ in range(intervals):
        given = world.interval(240, running_change)
        full = [
            replace(s, has_state=True, link=LinkLoad(0.95, 0.2, name="of a.1 to n6", instance=1)) for s in given.stages
        ]
        kinds += [proposal.kind for proposal in one.ended(Interval(full, given.instances, given.running_change))]
        if kinds:
            break
    return kinds


def test_a_full_link_moves_a_stage_but_none_during_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _full_link(10, "") == [ChangeKind.MOVE]
    assert _full_link(10, "it is being restarted") == []
    right = Controller.ended
    monkeypatch.setattr(Controller, "ended", lambda self, interval: right(self, replace(interval, running_change="")))
    assert _full_link(10, "it is being restarted") == [ChangeKind.MOVE], "the planted bug would be seen"


def test_a_number_set_by_hand_holds_and_the_wanted_one_is_displayed() -> None:
    world, one = Fluid({"a": 1, "b": 1}, held=("a",)), controller()

    orders = one.ended(world.interval(240))

    assert [each.stage for each in orders] == ["b"]
    assert one.statuses["a"].proposal.why.startswith("held at 1; ")
    assert one.statuses["a"].proposal.wanted == 4


def test_a_request_beyond_capacity_is_halved_then_backed_off() -> None:
    world, one = Fluid({"a": 1}), controller()
    (order,) = one.ended(world.interval(400))
    assert order.instances == 5

    asked = []
    while orders := one.refused("no node has room", for_capacity=True):
        asked.append(orders[0].instances)
    assert asked == [3, 2]
    assert one.statuses["a"].waits_for == "no node has room"

    gaps: list[int] = []
    gap = 0
    while len(gaps) < 6:
        orders = one.ended(world.interval(400))
        gap += 1
        if orders:
            gaps.append(gap)
            gap = 0
            one.refused("no node has room")
        else:
            assert one.statuses["a"].waits_for == "no node has room"
    assert gaps == [2, 3, 5, 9, 13, 13]


def test_half_of_the_wanted_instances_are_taken_when_they_fit() -> None:
    world, one = Fluid({"a": 1, "b": 8}), controller()
    orders = one.ended(world.interval(400))
    assert [each.stage for each in orders] == ["a"]

    (fewer,) = one.refused("no room", for_capacity=True)
    one.taken()
    world.instances["a"] = fewer.instances
    one.finalised()

    assert one.ended(world.interval(400)) == ()
    assert one.ended(world.interval(400))[0].instances > 3, "the rest is asked for as before"


def test_a_change_that_was_rolled_back_is_not_repeated_at_once() -> None:
    world, one = Fluid({"a": 1}), controller()
    assert one.ended(world.interval(240))
    one.taken()
    one.finalised("n2 was lost")

    assert one.statuses["a"].waits_for == "n2 was lost"
    assert [bool(one.ended(world.interval(240))) for _ in range(3)] == [False, False, True]


def test_a_dropped_growth_is_asked_for_in_halves_until_one_succeeds() -> None:
    world, one = Fluid({"a": 1}), controller()
    asked: list[int] = []

    def request() -> int:
        while not (orders := one.ended(world.interval(400))):
            pass
        one.taken()
        asked.append(orders[0].instances)
        return orders[0].instances

    for _ in range(3):
        request()
        one.finalised("user code did not start within 27 s")
    world.instances["a"] = request()
    one.finalised()
    request()
    assert asked[:4] == [5, 3, 2, 2]
    assert asked[4] > 3, "a growth that succeeds ends the limit"


def test_the_quota_of_the_application_is_reported() -> None:
    world, one = Fluid({"a": 1, "b": 1}), controller()

    orders = one.ended(world.interval(240, quota=4))

    assert [(each.stage, each.instances) for each in orders] == [("a", 2), ("b", 2)]
    assert "quota of 4" in orders[0].why


class Broken:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def decide(self, measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


def test_a_policy_that_raises_or_answers_nonsense_is_named_and_ignored() -> None:
    for answer in (ValueError("no"), 7, ScalingDecision(99, "more"), ScalingDecision(-1, "")):
        world, one = Fluid({"a": 1}), controller(Broken(answer))

        assert one.ended(world.interval(240)) == ()
        assert "policy p" in one.statuses["a"].proposal.why
        assert "stays as it is" in one.statuses["a"].proposal.why


def test_a_burst_is_ignored() -> None:
    world, one = Fluid({"a": 3}), controller()
    world.queue["a"] = 2_000.0
    assert one.ended(world.interval(200)) == ()
    assert "burst" in one.statuses["a"].proposal.why


def test_fifty_idle_applications_cost_little() -> None:
    """Work, not time: one pass over a stage asks its policy once, and nothing else that grows with the applications."""
    asked = 0

    def counting(measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        nonlocal asked
        asked += 1
        return Secant().decide(measures, limits, memory)

    worlds = [(Fluid({"a": 2, "b": 2}), Controller(counting)) for _ in range(50)]
    for world, one in worlds:
        one.ended(world.interval(100))
    assert asked == 100
