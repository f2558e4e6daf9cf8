"""A restarting application in `list`, `status` and `top`."""

from typing import Any

import pytest

from agiledart_cli.verbs.application_view import print_applications, print_status, recovery_text

RECOVERY: dict[str, Any] = {
    "attempt": 2, "from_epoch": 7, "reason": "a host was lost", "phase": "fetch", "waits_for": [], "seconds": 1.5,
    "bytes": 1_000, "total_bytes": 4_000, "restarts": 1,
}  # fmt: skip
BODY: dict[str, Any] = {
    "name": "orders", "version": 1, "state": "recovering", "reason": "", "changed_ms": 0, "stages": [], "summary": {},
    "epoch": {"committed": 7, "attempt": 2, "age_s": 3.0, "duration_ms": 20.0, "bytes": 5_000, "tolerated_losses": 1,
    "coordinator": "pi2"},
    "recovery": RECOVERY,
}  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("fetch", "fetches state, 1,000 of 4,000 bytes; attempt 2 from checkpoint 7"),
        ("restore", "restores state; attempt 2"),
        ("replay", "replays; attempt 2"),
        ("plan", "plans; attempt 2"),
    ],
)
def test_each_phase_has_a_description(phase: str, words: str) -> None:
    assert recovery_text({"recovery": {**RECOVERY, "phase": phase}}).startswith(words)


def test_missing_nodes_are_named() -> None:
    waiting = {**RECOVERY, "phase": "waiting", "waits_for": ["pi3", "pi4"]}
    assert recovery_text({"recovery": waiting}).startswith("waits for pi3, pi4;")
    assert recovery_text({"recovery": {**waiting, "waits_for": []}}).startswith("waits for free capacity;")
    assert recovery_text({"recovery": None}) == ""


def test_a_minority_partition_lists_its_duration_missing_voters_and_row_fate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = "2 of 3 voters of its register are not reached, so nothing is committed"
    island = {**RECOVERY, "phase": "minority", "waits_for": ["pi3", "pi4"], "seconds": 90.0, "reason": why}
    body = {**BODY, "state": "minority", "recovery": island}
    print_status(body)
    print_applications({"applications": [body], "unreadable": 0})
    told = capsys.readouterr().out
    assert told.count(f"no commit for 1 min 30 s, cannot reach pi3, pi4: {why}") == 2
    assert "orders v1   minority" in told


def test_status_and_list_display_the_recovery(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(BODY)
    print_applications({"applications": [BODY], "unreadable": 0})
    told = capsys.readouterr().out
    assert told.count("fetches state") == 2
    assert "checkpoint 7 committed" in told
    assert "survives the loss of 1 machine\n" in told


def test_an_end_without_a_command_is_reported_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    body = BODY | {"state": "stopped", "is_unverified": True, "recovery": None, "epoch": None}
    print_status(body)
    assert "no signed stop command exists: an older or malicious agent reported this" in capsys.readouterr().out
    print_status(body | {"is_unverified": False})
    assert "no user's order" not in capsys.readouterr().out


def test_instances_without_figures_before_the_end_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    stages: list[dict[str, Any]] = [{"name": name, "parallelism": 2, "instances": []} for name in ("a", "b")]
    body = BODY | {"state": "failed", "recovery": None, "epoch": None, "stages": stages}
    print_status(body | {"summary": {"instances_reporting": 3}})
    assert " figures of 3 of 4 instances: the others ended before they reported any\n" in capsys.readouterr().out
    print_status(body | {"summary": {"instances_reporting": 4}})
    assert "the others ended" not in capsys.readouterr().out


def test_status_gives_the_reason_why_epochs_stop(capsys: pytest.CaptureFixture[str]) -> None:
    why = "/data/out.csv cannot be written: no space left on device"
    instance = {"index": 0, "node": "pi3", "unsaved": why}
    stage = {"name": "out", "kind": "sink", "parallelism": 1, "instances": [instance]}
    print_status({**BODY, "state": "running", "recovery": None, "stages": [stage]})
    assert f" out on pi3 cannot be saved: {why}\n" in capsys.readouterr().out


def test_duplicate_rows_are_reported_by_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    told = {
        "duplicated": {"out": 260, "log": 0},
        "duplicates_by_attempt": [[3, "out", 214]],
        "uncounted": ["log"],
        "instances_reporting": 2,
    }
    print_status(BODY | {"state": "running", "recovery": None, "summary": told})
    said = capsys.readouterr().out
    assert " attempt 3: at most 214 rows emitted again by out\n" in said
    assert " earlier attempts: at most 46 rows emitted again\n" in said
    assert " log moved from a failed node: it may have emitted more rows again than are counted\n" in said
    print_status(BODY | {"state": "running", "recovery": None, "summary": {"duplicated": {"out": 0}}})
    assert "again" not in capsys.readouterr().out


def test_lost_rows_are_reported_with_their_source_and_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(BODY | {"losses": [[2, "readings", 200], [3, "more", 0]]})
    said = capsys.readouterr().out
    assert " attempt 2: lost at least 200 rows of readings: only the log of a failed node held them\n" in said
    assert " attempt 3: lost an unknown number of rows of more" in said


def test_a_lost_coordinator_that_hosts_nothing_is_replaced_while_rows_go_on() -> None:
    replaced = {**RECOVERY, "phase": "takeover", "waits_for": ["pi5"]}
    assert recovery_text({"recovery": replaced}) == (
        "rows go on; its coordinator is being replaced, because pi5 does not answer"
    )
