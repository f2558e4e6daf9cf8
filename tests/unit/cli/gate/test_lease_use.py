"""Cost of leases by application: by the time of instances on each machine."""

from agiledart_cli.gate.lease_use import MAX_NAMES, OTHER, UNUSED, LeaseUse
from agiledart_provisioning.gate.lease_entry import LeaseEntry

FIRST = LeaseEntry("g-1", "g", "agiledart-n-g-1", "small", 100_000, 1, 0, units=3)
SECOND = LeaseEntry("g-2", "g", "agiledart-n-g-2", "small", 100_000, 1, 0, units=2)


def test_a_lease_is_shared_by_the_time_of_instances_and_one_without_instances_is_unused() -> None:
    use = LeaseUse({})
    use.add({"b1": "g-1"}, {"big": {"work": ["b1", "b1", "a1"], "out": ["b1"]}, "small": {"work": ["b1"]}}, 10.0)
    use.add({"b1": "g-1"}, {"small": {"work": ["b1"]}}, 20.0)
    assert use.use == {"g-1": {"big": 30.0, "small": 30.0}}
    assert use.costs([FIRST, SECOND]) == {UNUSED: 0.2, "big": 0.15, "small": 0.15}
    assert sum(use.costs([FIRST, SECOND]).values()) == (FIRST.cost + SECOND.cost) / 1e6


def test_many_applications_are_counted_together() -> None:
    use = LeaseUse({})
    use.add({"b1": "g-1"}, {f"app{number}": {"work": ["b1"]} for number in range(MAX_NAMES + 5)}, 1.0)
    assert len(use.use["g-1"]) == MAX_NAMES + 1
    assert use.use["g-1"][OTHER] == 5.0
