"""Replays: published workload, billing, load files."""

import json

import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_provisioning.billing import Lease, started_units
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.registry import policy_named
from agiledart_provisioning.replay.item_model import ItemModel
from agiledart_provisioning.replay.load_file import EXAMPLE_TYPES, example_load, read_load, read_types_file
from agiledart_provisioning.replay.replay_run import ReplayResult, ReplayRun
from agiledart_provisioning.replay.replay_workload import (
    PATTERNS,
    VM,
    ReplayWorkload,
    items_per_machine_and_tick,
    manufacturing,
)
from agiledart_provisioning.replay.service_levels import share_within
from agiledart_provisioning.state import MachineOffer, OperatorType

SETTINGS = ProvisioningSettings()


def test_a_machine_sends_23_items_in_a_burst_and_the_walks_have_their_means() -> None:
    assert items_per_machine_and_tick() == pytest.approx(23.2, abs=0.01)
    assert [round(sum(PATTERNS[name]) / 120, 3) for name in ("random_walk_1", "random_walk_2")] == [4.133, 4.592]


@pytest.mark.parametrize(
    ("began", "ended", "btu", "minimum", "units"),
    [
        (0, 1, 600, 0, 1),
        (0, 600, 600, 0, 1),
        (0, 601, 600, 0, 2),
        (100, 1900, 600, 0, 3),
        (0, 10, 1, 60, 60),
        (0, 0, 600, 0, 1),
    ],
)
def test_each_started_unit_is_billed_once(began: float, ended: float, btu: float, minimum: float, units: int) -> None:
    assert started_units(began, ended, btu, minimum) == units


def test_an_ended_lease_is_never_paid_again() -> None:
    lease = Lease("vm1", 2.0, 0.0, 600.0)
    lease.extend()
    lease.end(1_000.0)
    assert (lease.cost, lease.paid_until_s) == (4.0, 1_200.0)
    with pytest.raises(ValueError, match="has ended"):
        lease.extend()


def test_half_of_the_items_are_on_time_without_a_queue() -> None:
    assert share_within(100, 0, 100) == pytest.approx(0.5)
    assert share_within(200, 0, 100) == pytest.approx(0.976, abs=0.001)
    assert share_within(100, 100, 100) == 0.0


def short(pattern: str, minutes: int) -> ReplayWorkload:
    whole = manufacturing(pattern)
    return ReplayWorkload(whole.types, whole.edges, whole.sources, whole.machines, minutes * 60)


def run(workload: ReplayWorkload, policy: str, **more: object) -> ReplayResult:
    offer = MachineOffer(VM.cpu, VM.memory, 1.0)
    return ReplayRun(workload, policy_named(policy, SETTINGS), offer, 600.0, 1, **more).run()  # type: ignore[arg-type]  # model only


def test_fluid_and_items_agree_on_the_published_workload() -> None:
    workload = short("stepwise", 20)
    fluid, items = run(workload, "btu"), run(workload, "btu", model=ItemModel)
    assert items.levels.items == pytest.approx(fluid.levels.items, rel=0.02)
    for level in ("real_time", "near_real_time", "relaxed"):
        assert items.levels.share(level) == pytest.approx(fluid.levels.share(level), abs=0.1)


def test_the_same_seed_gives_the_same_replay() -> None:
    first, second = run(short("stepwise", 10), "btu"), run(short("stepwise", 10), "btu")
    assert first.minutes == second.minutes
    assert first.resource_cost == second.resource_cost


def test_hosts_leases_for_scaling_that_found_no_capacity_and_gives_back_in_the_window() -> None:
    types = (OperatorType("t", 2_048, 1_000, 6, 100),)
    workload = ReplayWorkload(types, (), {}, (1,), 2_400, lambda _, second: 120.0 if second < 900 else 1.0)
    result = run(workload, "hosts")
    assert 3 <= max(minute.hosts for minute in result.minutes) <= 5
    assert result.minutes[-1].hosts == 1
    released = [lease for lease in result.leases if lease.ended_s is not None]
    assert len(released) == len(result.leases) - 1
    for lease in released:
        assert lease.ended_s is not None
        assert lease.paid_until_s - 80 <= lease.ended_s <= lease.paid_until_s + 30


TYPES, OFFER = read_types_file(json.dumps(EXAMPLE_TYPES).encode())


def test_a_rate_of_a_load_file_holds_until_the_next_one() -> None:
    workload = read_load(["second,type,rows_per_s", "1000,parse,5", "1010,parse,7", "1005,report,1"], TYPES)
    assert [workload.arriving("parse", second) for second in (0, 9, 10, 50)] == [5, 5, 7, 7]
    assert [workload.arriving("report", second) for second in (4, 5)] == [0, 1]
    assert workload.seconds == 70


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,b"], "line 1: the columns are a, b"),
        (["second,type,rows_per_s"], "no line with a rate"),
        (["second,type,rows_per_s", "1,parse"], "line 2: 2 fields"),
        (["second,type,rows_per_s", "1,parse,x"], "line 2: '1,parse,x'"),
        (["second,type,rows_per_s", "1,parse,-1"], "line 2: rows_per_s = -1"),
        (["second,type,rows_per_s", "1,prase,1"], "line 2: there is no type 'prase'"),
        (["second,type,rows_per_s", "5,parse,1", "5,parse,1"], "line 3: second 5 of parse: time goes back"),
    ],
)
def test_a_wrong_line_of_a_load_file_is_named(lines: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_load(lines, TYPES)
    assert message in str(raised.value)


def test_the_example_load_has_an_evening_peak() -> None:
    workload = read_load(example_load().splitlines(), TYPES)
    assert workload.arriving("parse", 7 * 3600) == 10 * workload.arriving("parse", 3600)
    assert OFFER.cost == 0.06
