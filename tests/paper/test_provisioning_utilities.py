"""[Hochreiner 2017] §4: cost, trigger, utilities; worked numbers of the provisioning specification."""

from dataclasses import replace

import pytest

from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.state import Host, MachineOffer, OperatorType, ProvisioningState
from agiledart_provisioning.utilities import cost, down_utility, host_utility, predicted_duration, up_trigger

SETTINGS = ProvisioningSettings()
TYPES = {
    "O1": OperatorType("O1", 660, 452, 89, 1500),
    "O2": OperatorType("O2", 131, 524, 68, 600),
    "O3": OperatorType("O3", 100, 430, 68, 750),
    "O6": OperatorType("O6", 65, 440, 68, 600),
}
OFFER = MachineOffer(4096, 7168, 6)


def state(*hosts: Host, types: tuple[OperatorType, ...] = tuple(TYPES.values())) -> ProvisioningState:
    return ProvisioningState(0, 600, types, hosts, OFFER)


def host_with_free(cpu: float, memory: float, *images: str) -> ProvisioningState:
    """Return a state whose only host has this much free, of 4,096 shares and 7,168 MB."""
    filler = OperatorType("filler", 4096 - cpu or 1e-12, 7168 - memory or 1e-12, 1, 1)
    host = Host("h1", 4096, 7168, 6, 600, frozenset(images), {"filler": 1})
    return state(host, types=(*TYPES.values(), filler))


@pytest.mark.parametrize(
    ("durations", "slo", "queue", "prediction", "fires"),
    [
        ((500, 520, 540, 560, 580), 600, 60, 600.0, False),
        ((500, 540, 580, 620), 650, 51, 660.0, True),
        ((500, 540, 580, 620), 650, 50, 660.0, False),
        ((400, 400, 400, 400, 400), 600, 51, 400.0, False),
    ],
)
def test_a_type_scales_up_when_its_trend_exceeds_the_bound_and_many_items_wait(
    durations: tuple[float, ...], slo: float, queue: float, prediction: float, fires: bool
) -> None:
    entry = OperatorType("t", 1, 1, 1, slo, durations[-1], durations, queue)
    answer = up_trigger(entry, SETTINGS)
    assert answer.prediction_ms == pytest.approx(prediction, abs=1e-9)
    assert answer.fires is fires


def test_a_type_that_is_too_slow_now_scales_up_against_its_trend() -> None:
    entry = OperatorType("t", 1, 1, 1, 600, 700, (400,) * 5, 51)
    assert predicted_duration(entry.durations_ms) == pytest.approx(400)
    assert up_trigger(entry, SETTINGS).fires


def test_a_type_without_a_measured_item_scales_up_by_its_queue_alone() -> None:
    assert up_trigger(OperatorType("t", 1, 1, 1, 600, queue=251), SETTINGS).fires
    assert not up_trigger(OperatorType("t", 1, 1, 1, 600, queue=250), SETTINGS).fires
    assert predicted_duration((500.0,)) is None


@pytest.mark.parametrize(
    ("cpu", "memory", "type_name", "images", "utility"),
    [
        (4096, 7168, "O6", (), 0.002794),
        (4096, 7168, "O6", ("O6",), 0.00002794),
        (2000, 3000, "O1", (), 0.009346),
        (2000, 451, "O1", (), -1.0),
        (4096, 6000, "O1", (), 0.010453),
        (660, 452, "O1", (), 0.0),
    ],
)
def test_utility_of_a_host_is_its_imbalance_over_the_instances_that_fit(
    cpu: float, memory: float, type_name: str, images: tuple[str, ...], utility: float
) -> None:
    given = host_with_free(cpu, memory, *images)
    answer = host_utility(given, given.hosts[0], TYPES[type_name], SETTINGS)
    assert answer == pytest.approx(utility, rel=2e-4, abs=1e-9)


@pytest.mark.parametrize(
    ("instances", "duration", "scalings", "queue", "utility"),
    [
        ((4, 1, 6), 500, (3, 10, 7), 10, 0.616583),
        ((4, 1, 6), 500, (3, 10, 7), 0, 100.616583),
        ((4, 1, 6), 1800, (3, 10, 7), 10, -1.550300),
        ((1, 1, 6), 500, (3, 10, 7), 10, -1.0),
        ((3, 3, 3), 600, (0, 0, 0), 5, -0.000100),
    ],
)
def test_utility_of_scaling_down_weighs_number_delay_and_earlier_scalings(
    instances: tuple[int, ...], duration: float, scalings: tuple[int, ...], queue: float, utility: float
) -> None:
    names = ("own", "few", "many")
    types = tuple(
        OperatorType(name, 1, 1, 1, 600, duration, (), queue, n) for name, n in zip(names, scalings, strict=True)
    )
    given = state(Host("h1", 4096, 7168, 6, 600, frozenset(), dict(zip(names, instances, strict=True))), types=types)
    assert down_utility(given, types[0], SETTINGS) == pytest.approx(utility, abs=1e-6)


def test_cost_adds_prices_idle_shares_and_penalties() -> None:
    hosts = (
        Host("h1", 4096, 7168, 6, 600, frozenset(), {"O1": 1, "O2": 1, "O3": 1}),
        Host("h2", 4096, 7168, 6, 600, frozenset(), {"O6": 2}),
    )
    assert cost(replace(state(*hosts), violations=3), SETTINGS) == pytest.approx(13.716208, abs=1e-6)
