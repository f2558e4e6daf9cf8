"""How often a run is brought back: later and later, and not for ever, unless it gets on in between."""

from agiledart_kernel.instants import SECOND, Instant
from agiledart_recovery.config import RecoveryConfig
from agiledart_recovery.lives.pace import Pace
from tests.unit.recovery.test_holding import running

CONFIG = RecoveryConfig()


def test_lives_that_come_to_nothing_begin_later_and_later_and_end() -> None:
    pace, now = Pace(CONFIG), Instant(0)
    waited = []
    while not pace.is_spent(now):
        began = pace.due(now)
        waited.append((began - now) // SECOND)
        now = Instant(began)
        pace.began(now)
    assert waited[:7] == [0, 0, 1, 2, 4, 8, 16]
    assert len(waited) == CONFIG.attempts
    assert max(waited) * SECOND <= CONFIG.pause_max_ns
    assert "10 times within 10 min and came to no epoch" in pace.spent_text()


def test_nodes_that_die_one_after_the_other_wear_nobody_down() -> None:
    pace, now = Pace(CONFIG), Instant(0)
    for _ in range(5 * CONFIG.attempts):
        now = Instant(now + 6 * SECOND)
        assert pace.due(now) <= now
        assert not pace.is_spent(now)
        pace.began(now)
        pace.gets_on()


def test_what_came_to_nothing_through_no_fault_of_the_run_is_not_counted() -> None:
    pace, now = Pace(CONFIG), Instant(SECOND)
    pace.began(now)
    pace.forgive()
    assert pace.due(now) == now
    pace.gets_on()
    pace.forgive()
    assert pace.due(now) == now


def test_an_epoch_that_is_committed_wipes_out_the_lives_before_it() -> None:
    world = running()
    pace = world.coordinator.next_life.pace
    while not pace.is_spent(world.now):
        pace.began(world.now)
    world.prepare()  # the epoch that was under way
    assert not pace.is_spent(world.now)
    assert pace.due(world.now) == world.now
