"""One line an event; refusals counted always and said once; printed lines bounded."""

import io
import json

from agiledart_agent.logs import MAX_ANSWER_CHARS, MAX_LOGGED_APPLICATIONS, MAX_PRINTED_CHARS, AgentLog, PrintedLines
from agiledart_kernel.limits import MAX_LOG_LINES


def test_console_and_json():
    console, structured = io.StringIO(), io.StringIO()
    AgentLog("console", "a1", stream=console).info("ring.joined", "joined", nodes=5)
    AgentLog("json", "a1", stream=structured).warning("peer.failed", "gone", peer="ff")
    assert console.getvalue() == "joined\n"
    event = json.loads(structured.getvalue())
    assert (event["event"], event["level"], event["node"], event["peer"]) == ("peer.failed", "warning", "a1", "ff")


def test_a_stranger_cannot_fill_a_disk():
    stream = io.StringIO()
    log = AgentLog(stream=stream)
    for n in range(1000):
        log.refused("tls", f"10.0.0.1:{n}")
        log.refused("expired", f"10.0.0.1:{n}")
    assert stream.getvalue().count("\n") == 2
    assert log.refusals == {"tls": 1000, "expired": 1000}


def test_a_closed_terminal_does_not_end_an_agent():
    stream = io.StringIO()
    stream.close()
    AgentLog(stream=stream).error("x", "y")


def test_debug_only_when_asked():
    stream = io.StringIO()
    AgentLog(stream=stream).debug("x", "y")
    assert stream.getvalue() == ""
    AgentLog(verbose=True, stream=stream).debug("x", "y")
    assert "y" in stream.getvalue()


def test_printed_lines_are_numbered_and_bounded():
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


def test_applications_are_bounded_too():
    lines = PrintedLines()
    for n in range(MAX_LOGGED_APPLICATIONS + 1):
        lines.add(f"app{n}", "x")
    assert lines.after("app0", 0) == []
    assert lines.after("app1", 0)


def test_long_lines_are_bounded_by_their_length():
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


def test_an_answer_is_bounded_and_can_be_continued():
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
