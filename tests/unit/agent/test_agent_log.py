"""One line an event; refusals counted always and said once; printed lines bounded."""

import io
import json

import pytest

from agiledart_agent.event_log.agent_log import (
    MAX_ANSWER_CHARS,
    MAX_LOGGED_APPLICATIONS,
    MAX_PRINTED_CHARS,
    AgentLog,
    PrintedLines,
)
from agiledart_agent.event_log.observation_events import log_event_of
from agiledart_kernel.limits import MAX_LOG_LINES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_node.scheduling import observations as of_scheduling
from agiledart_node.scheduling.observations import (
    ApplicationWaits,
    ElectionBegun,
    SchedulerElected,
    SchedulerLookedUp,
    SchedulerLost,
    SchedulerResigned,
)
from agiledart_overlay.wire import observations
from agiledart_overlay.wire.observations import (
    AdmissionAborted,
    JoinerAdmitted,
    MessageDropped,
    NodeWasLate,
    PeerDeclaredFailed,
    PeerSuspected,
    RecordConflictMerged,
    RingJoined,
    RingLeft,
    RingRejoining,
    SelfRefuted,
    SuccessorReplaced,
    SuspicionRefuted,
)


def test_logs_go_to_the_console_and_as_json() -> None:
    console, structured = io.StringIO(), io.StringIO()
    AgentLog("console", "a1", stream=console).info("ring.joined", "joined", nodes=5)
    AgentLog("json", "a1", stream=structured).warning("peer.failed", "gone", peer="ff")
    assert console.getvalue() == "joined\n"
    event = json.loads(structured.getvalue())
    assert (event["event"], event["level"], event["node"], event["peer"]) == ("peer.failed", "warning", "a1", "ff")


def test_an_unknown_sender_cannot_fill_the_disk() -> None:
    stream = io.StringIO()
    log = AgentLog(stream=stream)
    for n in range(1000):
        log.refused("tls", f"10.0.0.1:{n}")
        log.refused("expired", f"10.0.0.1:{n}")
    assert stream.getvalue().count("\n") == 2
    assert log.refusals == {"tls": 1000, "expired": 1000}


def test_a_closed_terminal_does_not_end_an_agent() -> None:
    stream = io.StringIO()
    stream.close()
    AgentLog(stream=stream).error("x", "y")


def test_debug_lines_are_logged_only_when_enabled() -> None:
    stream = io.StringIO()
    AgentLog(stream=stream).debug("x", "y")
    assert stream.getvalue() == ""
    AgentLog(verbose=True, stream=stream).debug("x", "y")
    assert "y" in stream.getvalue()


def test_printed_lines_are_numbered_and_bounded() -> None:
    lines = PrintedLines()
    for n in range(MAX_LOG_LINES + 5):
        lines.add("app", f"line {n}")
    kept = lines.after("app", 0, limit=MAX_LOG_LINES * 2)
    assert len(kept) == MAX_LOG_LINES
    assert kept[0][0] == 6
    assert [text for _, _, text in lines.after("app", MAX_LOG_LINES + 3)] == [
        f"line {MAX_LOG_LINES + 3}",
        f"line {MAX_LOG_LINES + 4}",
    ]
    assert lines.after("other", 0) == []


def test_per_application_logs_are_bounded_too() -> None:
    lines = PrintedLines()
    for n in range(MAX_LOGGED_APPLICATIONS + 1):
        lines.add(f"app{n}", "x")
    assert lines.after("app0", 0) == []
    assert lines.after("app1", 0)


def test_long_lines_are_bounded_by_their_length() -> None:
    lines = PrintedLines()
    text = "x" * 4_096
    for _ in range(3_000):
        lines.add("talker", text)
    kept = sum(len(line) for _, _, line in _all_of(lines, "talker"))
    assert MAX_PRINTED_CHARS - 4_096 < kept <= MAX_PRINTED_CHARS
    for n in range(3):
        for _ in range(1_024):
            lines.add(f"other{n}", text)
    assert lines.after("talker", 0)
    lines.add("last", "x")
    assert lines.after("talker", 0) == []
    assert lines.after("other0", 0)


def test_an_answer_is_bounded_and_can_be_continued() -> None:
    lines = PrintedLines()
    for _ in range(200):
        lines.add("talker", "x" * 4_096)
    assert len(lines.after("talker", 0)) == MAX_ANSWER_CHARS // 4_096
    assert [number for number, _, _ in _all_of(lines, "talker")] == list(range(1, 201))


def _all_of(lines: PrintedLines, application: str) -> list[tuple[int, float, str]]:
    found: list[tuple[int, float, str]] = []
    while more := lines.after(application, found[-1][0] if found else 0):
        found += more
    return found


PEER = Peer(NodeId(7), 1, "pi2")

ONE_OF_EACH: tuple[Observation, ...] = (
    RingJoined(5, 1), RingLeft(), PeerSuspected(PEER), SuspicionRefuted(PEER), PeerDeclaredFailed(PEER, "silent"),
    SelfRefuted(2), NodeWasLate(2_000_000_000), JoinerAdmitted(PEER), RecordConflictMerged(3), MessageDropped("form"),
    RingRejoining("it met another ring"), AdmissionAborted(PEER), SuccessorReplaced(PEER),
    SchedulerLookedUp("app", "walk", 2, 0), ElectionBegun("", 0), SchedulerElected("", 0, 1),
    SchedulerResigned("", 0, "idle"), SchedulerLost("app", PEER),
    ApplicationWaits("app", "no node has room", 1),
)  # fmt: skip


def test_every_observation_has_an_event_of_its_own() -> None:
    kinds = (*vars(observations).values(), *vars(of_scheduling).values())
    defined = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Observation)}
    assert {type(one) for one in ONE_OF_EACH} == defined - {Observation}
    names = [log_event_of(one)[1] for one in ONE_OF_EACH]
    assert "observation" not in names
    assert len(set(names)) == len(names)


def test_observations_are_one_object_a_line() -> None:
    stream = io.StringIO()
    log = AgentLog("json", "a1", verbose=True, stream=stream)
    for one in ONE_OF_EACH:
        log.observed(one)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(events) == len(ONE_OF_EACH)
    assert all({"time", "level", "event", "node", "text"} <= set(event) for event in events)
    assert [e["level"] for e in events if e["event"] in ("node.timer_late", "node.suspected")] == ["warning", "warning"]


def test_a_repeated_problem_is_logged_once_a_minute_and_details_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("agiledart_agent.event_log.agent_log.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    log = AgentLog("json", "a1", stream=stream)
    for _ in range(500):
        log.observed(SelfRefuted(1))
        log.observed(PeerSuspected(PEER))
        log.observed(NodeWasLate(1_000_000))
    assert stream.getvalue().count("\n") == 1
    now[0] += 61
    log.observed(SelfRefuted(1))
    assert json.loads(stream.getvalue().splitlines()[1])["suppressed"] == 499


def test_an_uncaught_error_is_one_json_line_or_a_readable_trace() -> None:
    structured, console = io.StringIO(), io.StringIO()
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        context = {"message": "in a callback", "exception": error}
        AgentLog("json", "a1", stream=structured).unhandled(context)
        AgentLog(stream=console).unhandled(context)
    assert structured.getvalue().count("\n") == 1
    event = json.loads(structured.getvalue())
    assert (event["event"], event["level"]) == ("internal", "error")
    assert "Traceback" in event["trace"]
    assert console.getvalue().count("\n") > 2
    AgentLog(stream=console).unhandled({"message": "without one"})


def test_user_output_neither_moves_a_cursor_nor_begins_a_line() -> None:
    stream = io.StringIO()
    AgentLog("console", "pi", stream=stream).warning(
        "application.failed", "boom \x1b]0;mine\x07\x9b2J\r\nerror: all is lost"
    )
    assert stream.getvalue() == "warning: boom \\x1b]0;mine\\x07\\x9b2J\\x0d\n    error: all is lost\n"
