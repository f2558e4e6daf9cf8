"""Both event queues keep their promises; the wheel's rounding is the only difference."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.instants import MILLISECOND
from agiledart_simulation.world.queues import QUEUES, EventQueue, HeapQueue, WheelQueue

both = pytest.mark.parametrize("make", QUEUES.values(), ids=QUEUES)


def drained(queue: EventQueue, limit: int = 1 << 62) -> list[tuple[int, int]]:
    found = []
    while (entry := queue.pop(limit)) is not None:
        found.append(entry[:2])
    return found


@both
def test_no_event_comes_before_its_time_or_after_the_limit(make: Callable[[], EventQueue]) -> None:
    queue = make()
    for number, ms in enumerate((5, 3, 9, 3)):
        queue.push(ms * MILLISECOND, number, None, None)
    assert len(queue) == 4
    assert drained(queue, 5 * MILLISECOND) == [(3_000_000, 1), (3_000_000, 3), (5_000_000, 0)]
    assert len(queue) == 1
    assert drained(queue) == [(9_000_000, 2)]
    assert queue.pop(1 << 62) is None


def test_the_wheel_rounds_up_and_keeps_the_order_of_pushing() -> None:
    queue = WheelQueue()
    for number, at in enumerate((2_999_999, 2_000_001, 2_000_000, 0)):
        queue.push(at, number, None, None)
    assert drained(queue) == [(0, 3), (2_000_000, 2), (3_000_000, 0), (3_000_000, 1)]


@both
def test_an_event_pushed_for_now_happens_now(make: Callable[[], EventQueue]) -> None:
    queue = make()
    queue.push(MILLISECOND, 1, None, None)
    assert queue.pop(MILLISECOND) is not None
    queue.push(MILLISECOND, 2, None, None)
    assert drained(queue, MILLISECOND) == [(MILLISECOND, 2)]


@both
def test_events_are_kept_and_pulled(make: Callable[[], EventQueue]) -> None:
    queue = make()
    for number in range(10):
        queue.push((10 - number) * MILLISECOND, number, "odd" if number % 2 else "even", None)
    queue.pop(MILLISECOND)
    queue.keep(lambda entry: entry[1] > 2)
    assert len(queue) == 6
    assert [entry[1] for entry in queue.pull(lambda entry: entry[2] == "odd")] == [3, 5, 7]
    assert [number for _, number in drained(queue)] == [8, 6, 4]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=60))
def test_instants_never_go_back_and_everything_comes_once(steps: list[tuple[int, bool]]) -> None:
    for queue in (HeapQueue(), WheelQueue()):
        now, popped = 0, []
        for number, (delay, pops) in enumerate(steps):
            queue.push(now + delay * MILLISECOND // 4, number, None, None)
            if pops and (entry := queue.pop(now + 3 * MILLISECOND)) is not None:
                assert entry[0] >= now
                now = entry[0]
                popped.append(entry[1])
        popped += [number for _, number in drained(queue)]
        assert sorted(popped) == list(range(len(steps)))
