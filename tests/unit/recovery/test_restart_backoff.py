"""How often a run is restarted: later and later, and not for ever, unless it gets on in between."""

from agiledart_kernel.instants import SECOND, Instant
from agiledart_recovery.attempts.restart_backoff import RestartBackoff
from agiledart_recovery.recovery_config import RecoveryConfig
from tests.unit.recovery.test_holding import running

CONFIG = RecoveryConfig()


def test_failing_attempts_back_off_and_finally_give_up() -> None:
    restart_backoff, now = RestartBackoff(CONFIG), Instant(0)
    waited = []
    while not restart_backoff.is_exhausted(now):
        began = restart_backoff.due(now)
        waited.append((began - now) // SECOND)
        now = Instant(began)
        restart_backoff.began(now)
    assert waited[:7] == [0, 0, 1, 2, 4, 8, 16]
    assert len(waited) == CONFIG.max_restarts
    assert max(waited) * SECOND <= CONFIG.pause_max_ns
    assert "10 times in 10 min without completing a checkpoint" in restart_backoff.exhausted_text()


def test_the_same_crash_three_times_in_a_row_ends_the_run() -> None:
    restart_backoff, now = RestartBackoff(CONFIG), Instant(0)
    for attempt, reason in enumerate(
        ("it used 512 MB", "it used 513.5 MB", "it hangs", "it used 1,024 MB", "it used 9 MB"), 1
    ):
        restart_backoff.crashed(attempt, reason)
        restart_backoff.crashed(attempt, reason)  # another instance of the process says so, too
        assert not restart_backoff.is_exhausted(now), attempt
    restart_backoff.crashed(6, "it used 7 MB")
    assert restart_backoff.is_exhausted(now)
    assert restart_backoff.exhausted_text().startswith("it ended so 3 times in a row")
    restart_backoff.on_epoch_committed()
    assert not restart_backoff.is_exhausted(now)


def test_nodes_that_die_one_after_another_use_up_no_attempts() -> None:
    restart_backoff, now = RestartBackoff(CONFIG), Instant(0)
    for _ in range(5 * CONFIG.max_restarts):
        now = Instant(now + 6 * SECOND)
        assert restart_backoff.due(now) <= now
        assert not restart_backoff.is_exhausted(now)
        restart_backoff.began(now)
        restart_backoff.on_epoch_committed()


def test_failures_not_caused_by_the_run_are_not_counted() -> None:
    restart_backoff, now = RestartBackoff(CONFIG), Instant(SECOND)
    restart_backoff.began(now)
    restart_backoff.forgive()
    assert restart_backoff.due(now) == now
    restart_backoff.on_epoch_committed()
    restart_backoff.forgive()
    assert restart_backoff.due(now) == now


def test_a_committed_epoch_resets_the_failed_attempts() -> None:
    world = running()
    restart_backoff = world.coordinator.next_attempt.restart_backoff
    while not restart_backoff.is_exhausted(world.now):
        restart_backoff.began(world.now)
    world.prepare()  # the epoch that was under way
    assert not restart_backoff.is_exhausted(world.now)
    assert restart_backoff.due(world.now) == world.now
