"""The last control interval out of samples of counts."""

import msgspec
import pytest

from agiledart_dataflow.counts.interval_measures import (
    INTERVAL_NS,
    LATE_NS,
    SECONDS,
    CountSample,
    EdgeMeasures,
    IntervalMeasures,
    SampleWindow,
    _near,
)
from agiledart_kernel.instants import SECOND
from agiledart_kernel.randomness import RandomStream


def sample(seconds: float, rows: int, **more: object) -> CountSample:
    """Counts at a moment; half of the time is work, each row makes two."""
    at = round(seconds * SECOND)
    usual = {"busy_ns": at // 2, "is_blocked": False, "waiting": rows // 10, "offered": rows + 7, "sent": {3: 2 * rows},
             "leaving": {3: 5}}  # fmt: skip
    return CountSample(at, rows, **(usual | more))  # type: ignore[arg-type]


def window(until: float, every: float = 0.5, rate: int = 100) -> SampleWindow:
    """Samples of an even flow, the first one at 0."""
    made = SampleWindow()
    for number in range(round(until / every) + 1):
        made.add(sample(number * every, round(number * every * rate)))
    return made


def test_an_even_flow_is_measured() -> None:
    measures = window(20).measures()
    assert measures is not None
    assert measures == IntervalMeasures(
        span_ns=INTERVAL_NS,
        rows=500,
        busy_ns=INTERVAL_NS // 2,
        blocked_ns=0,
        offered=(100.0,) * SECONDS,
        waiting=(160, 170, 180, 190, 200),
        taken=(500, 500, 500),
        edges=(EdgeMeasures(3, (1000, 1000, 1000), (5,) * SECONDS),),
    )
    assert measures.is_sound
    assert msgspec.convert(msgspec.to_builtins(measures), IntervalMeasures) == measures


@pytest.mark.parametrize(("age", "intervals"), [(0, 0), (4, 0), (5, 1), (9, 1), (10, 2), (15, 3), (60, 3)])
def test_a_young_instance_has_fewer_intervals_or_none(age: int, intervals: int) -> None:
    measures = window(age).measures()
    assert (len(measures.taken) if measures else 0) == intervals


def test_no_rate_is_reported_without_samples_or_over_a_pause() -> None:
    assert SampleWindow().measures() is None
    made = window(10)
    made.add(sample(13, 1300))
    assert made.measures() is None, "the process was stopped for three seconds"
    made = window(10)
    made.add(sample(10, 9))
    made.add(sample(9, 9))
    measures = made.measures()
    assert measures is not None
    assert measures.rows == 500, "time does not run backwards"


def test_late_samples_keep_their_own_times() -> None:
    made = SampleWindow()
    for number in range(17):
        late = 0.1 * (number % 3)
        made.add(sample(number + late, round((number + late) * 100)))
    measures = made.measures()
    assert measures is not None
    assert all(abs(rate - 100) < 1e-6 for rate in measures.offered)


def test_blocked_is_the_share_of_blocked_samples() -> None:
    made = window(10)
    for number in range(21, 31):
        made.add(sample(number / 2, number * 50, is_blocked=number % 2 == 0))
    measures = made.measures()
    assert measures is not None
    assert measures.blocked_ns == INTERVAL_NS // 2


def test_samples_are_few_however_often_they_are_taken() -> None:
    made = window(30, every=0.01)
    assert len(made._samples) <= 256
    long = window(100)
    assert len(long._samples) == 32


GOOD = IntervalMeasures(INTERVAL_NS, 1, 1, 1, (1.0,) * 5, (1,) * 5, (1,), (EdgeMeasures(0, (1,), (1,) * 5),))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": -1},
        {"offered": (1.0,) * 4},
        {"offered": (float("nan"),) * 5},
        {"offered": (float("inf"),) * 5},
        {"waiting": (1,) * 6},
        {"taken": ()},
        {"taken": (1,) * 4},
        {"busy_ns": 1 << 62},
        {"span_ns": 0},
        {"edges": (EdgeMeasures(0, (1, 1), (1,) * 5),)},
        {"edges": (EdgeMeasures(0, (1,), (1,)),)},
        {"edges": (EdgeMeasures(0, (-1,), (1,) * 5),)},
    ],
)
def test_unmeasured_windows_are_left_out(change: dict[str, object]) -> None:
    assert GOOD.is_sound
    assert not msgspec.structs.replace(GOOD, **change).is_sound


def test_the_nearest_sample_is_found_as_by_looking_at_all() -> None:
    random = RandomStream(5, "samples")
    for _ in range(200):
        times = sorted({random.index(40) * SECOND // 8 for _ in range(1 + random.index(20))})
        samples = [CountSample(at, 0, 0, False, 0, 0, {}, {}) for at in times]
        moment = random.index(44) * SECOND // 8
        nearest = min(samples, key=lambda sample: abs(sample.at_ns - moment))
        expected = nearest if abs(nearest.at_ns - moment) <= LATE_NS else None
        assert _near(samples, times, moment) is expected
