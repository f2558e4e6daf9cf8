"""Causes of waiting: one planted case of each, and what must not be taken for a cause."""

from typing import Any

from agiledart_node.user_commands.waiting_causes import LEAST_MS, WaitingFacts, waiting_causes
from agiledart_node.wire.application_responses import StageRow, WaitingRow
from agiledart_node.wire.recovery_responses import EpochRow, RecoveryRow

SOME_MS = 52_000


def stage(name: str, kind: str = "operator", *instances: dict[str, Any]) -> StageRow:
    rows = [{"index": index, "node": f"a{index + 1}", **figures} for index, figures in enumerate(instances or ({},))]
    return StageRow(name, kind, len(rows), rows)


def facts(*stages: StageRow, edges: tuple[tuple[int, int], ...] = (), **fields: Any) -> WaitingFacts:
    usual = {"name": "app", "state": "running", "reason": ""}
    return WaitingFacts(stages=stages, edges=edges, **(usual | fields))


def line(work: dict[str, Any] | None = None, report: dict[str, Any] | None = None, **fields: Any) -> WaitingFacts:
    """trips → work → report, where trips is blocked by work."""
    trips = stage("trips", "source", {"blocked_ms": SOME_MS, "blocked_by": [(1, 0)]})
    return facts(
        trips,
        stage("work", "operator", work or {}),
        stage("report", "sink", report or {}),
        edges=((0, 1), (1, 2)),
        **fields,
    )


def only(made: list[WaitingRow]) -> WaitingRow:
    (row,) = made
    assert row.text
    assert row.advice
    return row


def recovery(phase: str, *nodes: str, remedy: str = "") -> RecoveryRow:
    return RecoveryRow(2, 7, "a3 does not answer", phase, list(nodes), 12.0, 0, 0, 1, remedy)


def epoch(age_s: float) -> EpochRow:
    return EpochRow(9, 1, age_s, 1.0, 1, None, interval_s=5.0)


def test_nothing_waits() -> None:
    quiet = facts(stage("trips", "source", {}), stage("report", "sink", {}), edges=((0, 1),), epoch=epoch(6.0))
    assert waiting_causes(quiet) == []


def test_a_missing_node() -> None:
    row = only(waiting_causes(facts(recovery=recovery("waiting", "a3", remedy="agiledart checkpoint recover app"))))
    assert (row.cause, row.seconds) == ("node", 12.0)
    assert row.text == "app waits for a3: a3 does not answer"
    assert "agiledart checkpoint recover app" in row.advice


def test_missing_voters_of_a_minority() -> None:
    row = only(waiting_causes(facts(state="minority", recovery=recovery("minority", "a2", "a3"))))
    assert (row.cause, row.text) == ("node", "app commits nothing without a2, a3: a3 does not answer")


def test_a_host_that_does_not_answer() -> None:
    row = only(waiting_causes(facts(silent_nodes=["a4"])))
    assert (row.cause, row.text) == ("node", "a4 does not answer")


def test_no_capacity_after_a_loss_and_at_the_start() -> None:
    after = only(waiting_causes(facts(recovery=recovery("waiting"))))
    assert (after.cause, after.seconds) == ("capacity", 12.0)
    before = only(waiting_causes(facts(state="deploying", reason="waits for capacity for 3 instances")))
    assert (before.cause, before.text) == ("capacity", "waits for capacity for 3 instances")


def test_user_code_that_does_not_return_and_stages_behind_it() -> None:
    row = only(waiting_causes(line({"user_call": "taxi.py:42 in parse", "user_call_ms": SOME_MS})))
    assert row == WaitingRow(
        "user call",
        "work on a1: user code has not returned: taxi.py:42 in parse",
        row.advice,
        "work",
        0,
        "a1",
        52.0,
        ["trips"],
    )


def test_user_code_is_named_at_its_own_stage_and_not_at_others_of_its_process() -> None:
    call = {"user_call": "taxi.py:42 in parse", "user_call_step": "parse", "user_call_ms": SOME_MS}
    process = facts(stage("clean+parse", "operator", call), stage("report", "sink", call), edges=((0, 1),))
    assert only(waiting_causes(process)).stage == "clean+parse"


def test_a_full_disk_at_a_snapshot_and_at_a_log() -> None:
    snapshot = only(
        waiting_causes(facts(stage("work", "operator", {"unsaved": "/var cannot be written: no space left on device"})))
    )
    log = only(waiting_causes(facts(stage("trips", "source", {"connection_status": "/var: no space left on device"}))))
    assert (snapshot.cause, log.cause) == ("disk", "disk")
    assert snapshot.text.startswith("work on a1 cannot be saved: ")


def test_a_snapshot_that_fails_for_another_reason() -> None:
    assert only(waiting_causes(facts(stage("work", "operator", {"unsaved": "state is too large"})))).cause == "snapshot"


def test_a_broker_that_is_away() -> None:
    row = only(
        waiting_causes(
            facts(stage("trips", "source", {"connection_status": "broker b1: refused for 8 s", "silent_ms": SOME_MS}))
        )
    )
    assert (row.cause, row.text) == ("outside", "trips on a1: broker b1: refused for 8 s")


def test_a_lost_link_is_the_cause_and_not_the_receiver_behind_it() -> None:
    figures = {"blocked_ms": SOME_MS, "blocked_by": [(1, 0)], "waits_for": "a2: no answer for 9 s (dialled 3 times)"}
    row = only(waiting_causes(facts(stage("trips", "source", figures), stage("work"), edges=((0, 1),))))
    assert (row.cause, row.stage) == ("link", "trips")
    assert row.text == "trips on a1 waits for a2: no answer for 9 s (dialled 3 times)"


def test_a_link_is_silent_because_the_code_behind_it_does_not_return() -> None:
    """One process runs both: while the user's code does not return, it answers no other process."""
    silent = {"waits_for": "a1: no answer for 9 s (dialled 3 times)", "blocked_ms": 9_000, "blocked_by": [(1, 0)]}
    call = {"user_call": "taxi.py:42 in parse", "user_call_ms": SOME_MS}
    row = only(
        waiting_causes(facts(stage("trips", "source", silent), stage("work", "operator", call), edges=((0, 1),)))
    )
    assert (row.cause, row.blocks) == ("user call", ["trips"])


def test_a_slow_sink_and_the_stages_behind_it() -> None:
    blocked = {"blocked_ms": 9_000, "blocked_by": [(2, 0)]}
    row = only(waiting_causes(line(blocked, {"sink_full_ms": SOME_MS})))
    assert (row.cause, row.stage, row.seconds) == ("slow sink", "report", 52.0)
    assert row.blocks == ["trips", "work"]


def test_a_sink_of_an_absent_system_is_not_slow() -> None:
    figures = {"sink_full_ms": SOME_MS, "connection_status": "db: refused"}
    assert [row.cause for row in waiting_causes(facts(stage("report", "sink", figures)))] == ["outside"]


def test_a_full_receiver_is_found_at_the_end_of_the_chain() -> None:
    row = only(waiting_causes(line()))
    assert (row.cause, row.stage, row.node, row.blocks) == ("full receiver", "work", "a1", ["trips"])
    assert row.text == "work on a1 is slower than its input; trips waits for it"
    assert "agiledart explain scaling app work" in row.advice


def test_receivers_that_block_each_other_end_the_search() -> None:
    one, other = ({"blocked_ms": SOME_MS, "blocked_by": [(number, 0)]} for number in (1, 0))
    assert [row.cause for row in waiting_causes(facts(stage("a", "operator", one), stage("b", "operator", other)))] == [
        "full receiver",
        "full receiver",
    ]


def test_a_moment_of_waiting_is_no_cause() -> None:
    short = LEAST_MS - 1
    figures = {
        "blocked_ms": short,
        "blocked_by": [(0, 0)],
        "sink_full_ms": short,
        "user_call_ms": short,
        "silent_ms": short,
    }
    assert waiting_causes(facts(stage("report", "sink", figures))) == []


def join(
    orders: dict[str, Any], payments: dict[str, Any], paid: dict[str, Any] | None = None, **fields: Any
) -> WaitingFacts:
    return facts(
        stage("orders", "source", orders),
        stage("payments", "source", payments),
        stage("paid", "operator", paid or {}),
        edges=((0, 2), (1, 2)),
        **fields,
    )


def test_rows_wait_for_a_silent_input() -> None:
    silent, live = {"silent_ms": SOME_MS, "event_time": 1_000}, {"event_time": 60_000}
    awaited = {"sources": ["orders"], "held": ["payments"], "since_ms": 1, "silent_ms": SOME_MS, "rows": 1_200}
    row = only(waiting_causes(join(silent, live, {"awaited_input": awaited}, epoch=epoch(4.0))))
    assert (row.cause, row.stage, row.seconds) == ("silent input", "paid", 52.0)
    assert row.text == "payments waits for orders (1,200 rows wait, saved meanwhile), silent"
    assert row.advice == "idle_timeout= of orders lets payments go on; rows that come afterwards may be late"


def test_windows_stay_open_for_a_silent_input_although_no_row_waits() -> None:
    row = only(waiting_causes(join({"silent_ms": SOME_MS, "event_time": 1_000}, {"event_time": 60_000})))
    assert (row.cause, row.text) == ("silent input", "paid waits for orders, silent")


def test_an_input_that_never_brought_a_row_holds_back_the_others() -> None:
    row = only(waiting_causes(join({"silent_ms": SOME_MS, "event_time": None}, {"event_time": 60_000})))
    assert row.text == "paid waits for orders, silent"


def test_a_silent_input_that_is_ahead_or_has_ended_holds_back_nothing() -> None:
    live = {"event_time": 60_000}
    assert waiting_causes(join({"silent_ms": SOME_MS, "event_time": 70_000}, live)) == []
    assert waiting_causes(join({"silent_ms": SOME_MS, "event_time": 1_000, "finished": True}, live)) == []


def test_a_silent_source_alone_is_no_cause() -> None:
    alone = facts(stage("trips", "source", {"silent_ms": SOME_MS}), stage("work"), edges=((0, 1),))
    assert waiting_causes(alone) == []


def test_a_late_checkpoint() -> None:
    row = only(waiting_causes(facts(epoch=epoch(40.0))))
    assert (row.cause, row.seconds) == ("checkpoint", 40.0)
    assert row.text == "no checkpoint has been committed since number 9"
