"""An altered or removed audit line is detected, over restarts and rotations; floods push nothing out."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agiledart_agent.audit.audit_lines import audit_line_of, refused
from agiledart_agent.audit.audit_trail import ALLOWED, REFUSED, REFUSED_AT_ONCE, AuditTrail
from agiledart_agent.audit.hash_chain import HashChain
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_kernel.machine import Completed
from agiledart_kernel.permissions import Principal
from agiledart_node.wire.audit_messages import AuditFilter, AuditLines, QueryAudit, ReadAudit
from agiledart_node.wire.commands import Command, CreateToken, SetBan, Stop, Submit

ME = Principal("submitter", "", b"m" * 32)
LINES = [f'[{n},"line"]'.encode() for n in range(1, 9)]


def written(folder: Path, lines: list[bytes] = LINES, max_bytes: int = 1 << 20) -> HashChain:
    chain = HashChain(folder, "x", max_bytes)
    chain.open()
    for number, line in enumerate(lines, 1):
        chain.append(line, number)
    chain.syncing().run()
    return chain


def again(folder: Path, max_bytes: int = 1 << 20) -> HashChain:
    chain = HashChain(folder, "x", max_bytes)
    chain.open()
    return chain


def is_whole(chain: HashChain) -> bool:
    reading = chain.reading()
    lines = list(reading.lines())
    return all(line.is_whole for line in lines) and reading.is_whole


def test_a_chain_continues_after_a_restart(tmp_path: Path) -> None:
    written(tmp_path).close()
    chain = again(tmp_path)
    chain.append(b"more", 9)
    assert [line.text for line in chain.reading().lines()] == [*LINES, b"more"]
    assert is_whole(chain)
    assert (tmp_path / "x.log").stat().st_mode & 0o777 == 0o600


ALTERATIONS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a character": lambda lines: [*lines[:3], lines[3].replace(b"line", b"lime"), *lines[4:]],
    "one in the middle": lambda lines: [*lines[:3], *lines[4:]],
    "the first": lambda lines: lines[1:],
    "the last": lambda lines: lines[:-1],
    "all": lambda lines: [],
    "two changed places": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "one twice": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "one of one's own": lambda lines: [*lines, b"%064d evil" % 0],
}


@pytest.mark.parametrize("when", ["running", "restarted", "restarted and written"])
@pytest.mark.parametrize("what", ALTERATIONS)
def test_any_altered_or_removed_line_is_detected(tmp_path: Path, what: str, when: str) -> None:
    chain = written(tmp_path)
    path = tmp_path / "x.log"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"".join(line + b"\n" for line in ALTERATIONS[what](lines)))
    if when != "running":
        chain.close()
        chain = again(tmp_path)
    if when == "restarted and written":
        chain.append(b"more", 9)
    assert not is_whole(chain)


@pytest.mark.parametrize("what", ["x.old", "x.log", "x.head"])
def test_a_missing_file_is_detected(tmp_path: Path, what: str) -> None:
    written(tmp_path, LINES * 4, 600).close()
    (tmp_path / what).unlink()
    assert not is_whole(again(tmp_path, 600))


def test_two_files_are_kept_and_linked(tmp_path: Path) -> None:
    chain = written(tmp_path, LINES * 20, 600)
    for one in (chain, again(tmp_path, 600)):
        kept = [line.text for line in one.reading().lines()]
        assert 0 < len(kept) < 20
        assert kept == (LINES * 20)[-len(kept) :]
        assert is_whole(one)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * 700 + 400


def test_a_kill_before_the_first_lines_are_on_disk_is_not_an_alteration(tmp_path: Path) -> None:
    chain = HashChain(tmp_path, "x")
    chain.open()
    for number, line in enumerate(LINES, 1):
        chain.append(line, number)
    chain.close()  # no `syncing`: its writes are there, as the system keeps them
    assert is_whole(again(tmp_path))
    (tmp_path / "x.log").write_bytes(b"".join((tmp_path / "x.log").read_bytes().splitlines(keepends=True)[1:]))
    assert not is_whole(again(tmp_path))


def test_half_a_line_after_a_power_cut_is_not_an_alteration(tmp_path: Path) -> None:
    written(tmp_path).close()
    with (tmp_path / "x.log").open("ab") as file:
        file.write(b"0123456789abcdef")
    chain = again(tmp_path)
    assert is_whole(chain)
    chain.append(b"more", 9)
    assert is_whole(again(tmp_path))


def test_lines_written_during_a_reading_are_not_part_of_it(tmp_path: Path) -> None:
    chain = written(tmp_path)
    reading = chain.reading()
    chain.append(b"more", 9)
    assert [line.text for line in reading.lines()] == LINES
    assert reading.is_whole


# ---- the book


def noted(command: Command, reason: str = "", principal: Principal = ME):  # type: ignore[no-untyped-def]
    line = audit_line_of(command, principal, "submitter 6d6d", "127.0.0.1:5")
    return refused(line, reason, "because") if reason else line


def ask(book: AuditTrail, answers: list[object], **more: object) -> AuditLines:
    """One question, in a running loop's stead."""

    async def play() -> None:
        fields: Any = {"wanted": AuditFilter(), "after": 0, "limit": 100, "verify": True, **more}
        book.read(ReadAudit(1, QueryAudit(1, **fields)))
        await asyncio.gather(*book._tasks)

    asyncio.run(play())
    found = answers.pop()
    assert isinstance(found, Completed)
    assert isinstance(found.result, AuditLines)
    return found.result


def opened(tmp_path: Path, answers: list[object]) -> AuditTrail:
    book = AuditTrail(tmp_path, AgentLog(), answers.append)
    book.open()
    book._is_syncing = True  # no loop runs here
    return book


def test_lines_are_found_by_actor_action_and_time(tmp_path: Path) -> None:
    answers: list[object] = []
    book = opened(tmp_path, answers)
    other = Principal("reader", "", b"o" * 32)
    book.note(noted(Stop("taxi", now=True)))
    book.note(noted(Stop("mill"), "owner"))
    book.note(noted(Stop("taxi"), "role", other))
    found = ask(book, answers)
    assert [(line.number, line.action, line.application, line.allowed, line.reason) for line in found.lines] == [
        (1, "stop", "taxi", True, ""),
        (2, "stop", "mill", False, "owner"),
        (3, "stop", "taxi", False, "role"),
    ]
    assert (found.kept, found.faults, found.reached, found.has_more) == (3, (), 3, False)
    assert found.lines[0].details == "now=True"
    assert [line.number for line in ask(book, answers, wanted=AuditFilter(application="taxi")).lines] == [1, 3]
    assert [line.number for line in ask(book, answers, wanted=AuditFilter(requester="6f6f")).lines] == [3]
    assert not ask(book, answers, wanted=AuditFilter(since_ms=1 << 50)).lines
    part = ask(book, answers, limit=2)
    assert (len(part.lines), part.reached, part.has_more) == (2, 2, True)
    rest = ask(book, answers, after=2, verify=False)
    assert ([line.number for line in rest.lines], rest.has_more, rest.kept) == ([3], False, 0)


def test_an_altered_line_is_reported_and_numbering_continues(tmp_path: Path) -> None:
    answers: list[object] = []
    book = opened(tmp_path, answers)
    for _ in range(3):
        book.note(noted(Stop("taxi")))
    path = tmp_path / "audit" / f"{ALLOWED}.log"
    path.write_bytes(path.read_bytes().replace(b"taxi", b"tax1", 1))
    found = ask(book, answers)
    assert found.faults == ("line 1 of the allowed commands was altered, or lines before it were removed",)
    book = opened(tmp_path, answers)
    book.note(noted(Stop("taxi")))
    assert [line.number for line in ask(book, answers).lines] == [1, 2, 3, 4]
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700


def test_refused_attempts_evict_nothing_and_are_limited_per_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("agiledart_agent.audit.audit_trail.time.monotonic", lambda: clock[0])
    answers: list[object] = []
    book = opened(tmp_path, answers)
    book.note(noted(Stop("mine")))
    for _ in range(REFUSED_AT_ONCE + 300):
        book.note(noted(Stop("theirs"), "owner"))
    book.note(noted(Stop("theirs"), "owner", Principal("reader", "", b"o" * 32)))  # another key has a ration of its own
    clock[0] = 1.0
    book.note(noted(Stop("theirs"), "owner"))
    lines = ask(book, answers, limit=10_000).lines
    assert lines[0].application == "mine"
    assert len(lines) == 1 + REFUSED_AT_ONCE + 2
    assert (lines[-1].suppressed, lines[-2].suppressed) == (300, 0)
    assert (tmp_path / "audit" / f"{REFUSED}.log").exists()


def test_a_full_disk_loses_lines_and_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[object] = []
    book = opened(tmp_path, answers)
    book.note(noted(Stop("a")))
    with monkeypatch.context() as broken:
        broken.setattr("agiledart_agent.audit.hash_chain.os.write", lambda *_: 3)
        book.note(noted(Stop("b")))
    book.note(noted(Stop("c")))
    found = ask(book, answers)
    assert [line.application for line in found.lines] == ["a", "c"]
    assert found.faults == ("1 lines were lost: the disk did not take them",)


def test_content_is_never_logged_and_arguments_are() -> None:
    said = audit_line_of(Submit("taxi", b"secret", b"code", {"count": 3}, 2), ME, "w", "h")
    assert said.details == "parallelism={'count': 3} executors=2"
    assert audit_line_of(CreateToken("reader", 5), ME, "w", "h").details == "role=reader uses=5"
    assert audit_line_of(SetBan("ab" * 32, 0, "x" * 400), ME, "w", "h").details.startswith(
        f"target={'ab' * 32} until=0"
    )
    assert len(audit_line_of(SetBan("ab" * 32, 0, "x" * 400), ME, "w", "h").details) == 240


def test_an_audit_log_that_was_never_opened_closes_silently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(AuditTrail(tmp_path, AgentLog(), lambda event: None).close())
    assert "audit" not in capsys.readouterr().err
