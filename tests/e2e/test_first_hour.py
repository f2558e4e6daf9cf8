"""A stranger's first hour in a fresh account: the pages' examples, and every mistake that users made on their first day.

All commands are typed by a user with only the project's commands on the path. Each answer is checked: its exit code,
its message, and that every failure is reported in one line with the next step, never in a traceback.
"""

import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of
from tests.docs.stranger import Background, Stranger, clone_of_it
from tests.e2e.account import ROOT, Account

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(1800)]

README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial" / "first-topology.md"
SECONDS = 180
LONGEST = 30
"""Lines that an answer to a mistake may have: what was wrong must not be looked for."""

_TOKEN = re.compile(r"^(adart1\w{40,})", re.MULTILINE)
_ALONE = ("Spark", "spark", "analytics", "apt-get", "1883", "plant", "192.168", "pi1", "--pull-the-plug")
"""Needs of README blocks that this hour does not meet; tests/docs/test_pages.py runs them."""


class Visitor(Stranger):
    """The reader of pages, in a fresh account."""

    def __init__(self, account: Account) -> None:
        super().__init__(account.home)
        self._account = account

    def _machine(self, name: str) -> tuple[Path, dict[str, str]]:
        return self._account.folder(name or "here"), self._account.environment()

    def _entered(self, command: list[str], folder: Path, environment: dict[str, str]) -> list[str]:
        return self._account.entered(command, folder, environment)


class Terminal:
    """Where the stranger types."""

    def __init__(self, account: Account, folder: Path) -> None:
        self._account, self.folder = account, folder
        self._lasting: list[Background] = []

    def types(self, line: str, *words: str, code: int = 0, without: str = "") -> str:
        """Type a line; its answer has this exit code and these words, in this order, and gives the answer."""
        command = self._account.entered(["bash", "-c", line], self.folder, self._account.environment())
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        told = f"$ {line}\nexit code {done.returncode}\n{done.stdout}"
        assert done.returncode == code, told
        self._judge(done.stdout, words, told, lines=0 if code == 0 else LONGEST)
        assert not without or without not in done.stdout, told
        return done.stdout

    def leaves_running(self, line: str, until: str, *words: str) -> Background:
        """Type a line in a terminal of its own, and wait until what it says matches."""
        command = self._account.entered(["bash", "-c", f"exec {line}"], self.folder, self._account.environment())
        begun = Background(command, self.folder, {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}, is_terminal=True)
        self._lasting.append(begun)
        begun.wait_for(re.compile(until), SECONDS)
        self._judge(begun.text, words, f"$ {line}\n{begun.text}")
        return begun

    def leave(self) -> None:
        """Ctrl-C in each of them, newest first."""
        ended = [(one.stop(), one.text) for one in reversed(self._lasting)]
        assert all(code in (0, 130) and "Traceback" not in text for code, text in ended), ended

    def ends(self, one: Background) -> None:
        """Ctrl-C in one of them."""
        self._lasting.remove(one)
        assert one.stop() in (0, 130), one.text
        assert "Traceback" not in one.text

    @staticmethod
    def _judge(text: str, words: tuple[str, ...], told: str, lines: int = 0) -> None:
        assert "Traceback" not in text, told
        place = 0
        for word in words:
            place = text.find(word, place)
            assert place >= 0, f"{word!r} is not said, or too early: {told}"
        assert not lines or text.count("\n") <= lines, f"that is long for a mistake: {told}"


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with Account() as made:
        yield made


@pytest.fixture
def terminal(account: Account, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    made = Terminal(account, account.folder(request.node.name.removeprefix("test_")[:20]))
    for block in blocks_of(README):
        if block.text.startswith("# rooms.py"):
            (made.folder / "rooms.py").write_text(block.text)
    lines = '{"at": "2026-06-01T12:00:10Z", "room": "attic", "temperature": 24.5}\n'
    (made.folder / "readings.jsonl").write_text(lines)
    yield made
    made.leave()


def test_an_empty_account_is_shown_where_to_begin(account: Account, terminal: Terminal) -> None:
    if account.is_own:
        assert terminal.types("id -un").strip() == "stranger"
    terminal.types("ls -A ~", without="agiledart")
    terminal.types("agiledart", "agiledart demo", "agiledart run", "agiledart up", "agiledart agent")
    nobody = ("No agent answers", "~/.local/state/agiledart", 'Start one with "agiledart agent"', "agiledart up")
    for verb in (
        "nodes",
        "list",
        "status x",
        "logs x",
        "stop x",
        "submit rooms.py:rooms --set readings=jsonl:readings.jsonl",
    ):
        terminal.types(f"agiledart {verb}", *nobody, code=3)
    terminal.types("agiledart doctor", "packages", "state directory", "start one: agiledart agent, or agiledart up")


def test_the_pages_commands_work(account: Account) -> None:
    """The README up to the broker, and the tutorial."""
    reader = Visitor(account)
    clone_of_it(account.folder("here"))
    try:
        for page in (README, TUTORIAL):
            for block in blocks_of(page):
                if block.language in ("python", "console") and not block.reason and not _is_elsewhere(block):
                    reader.follow(block)
    finally:
        reader.leave()
    assert len(reader.run) >= 25


def _is_elsewhere(block: Block) -> bool:
    return any(word in block.text for word in _ALONE) or "clean-trips" in block.text


RUN = "agiledart run rooms.py:rooms --set "
SUBMIT = "agiledart submit rooms.py:rooms --set"

Types = Callable[..., str]
"""`Terminal.types`."""


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("agiledart rn", 2, ['There is no verb "rn". Did you mean run?']),
        ("agiledart agent --listn 127.0.0.1:1", 2, ["No such option", "--listen"]),
        (f"{RUN}readings=readings.jsonl", 2, ["did you mean jsonl:readings.jsonl"]),
        (f"{RUN}readings=json:readings.jsonl", 2, ["there is no source 'json'. Did you mean jsonl?"]),
        (f"{RUN}readings=mqt://127.0.0.1/x", 2, ["Did you mean mqtt?"]),
        (f"{RUN}readings=jsonl:reading.jsonl", 1, ["readings: ", "reading.jsonl cannot be read: no such file"]),
        (f"{RUN}reading=jsonl:readings.jsonl", 2, ["no such parameter. Did you mean readings?"]),
        (f"{RUN}readings=csv:readings.jsonl", 1, ["looks like JSON, which jsonl: reads", "not one record"]),
        ("agiledart run rooms.py:rooms", 2, ["needs readings, which nothing sets:  --set readings="]),
        ("agiledart run rooms.py:room --set readings=jsonl:x", 2, ["rooms.py has no room. Did you mean rooms?"]),
        ("agiledart run candidate_node.py:rooms --set readings=jsonl:x", 2, ["candidate_node.py does not exist"]),
        (f"{RUN}readings=jsonl:readings.jsonl --set report=sql:plant?table=x", 1, ["no credential 'plant'", "URL", "600"]),
        (f"echo nonsense > bad.jsonl; {RUN}readings=jsonl:bad.jsonl", 1, ["bad.jsonl:1 is no JSON", "not one record"]),
    ],
)  # fmt: skip
def test_typing_errors_are_understood(terminal: Terminal, line: str, code: int, words: list[str]) -> None:
    terminal.types(line, *words, code=code)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("s/mean()/meen()/", ["wrong.py:20", "'meen'", "did you mean .mean(…)?"]),
        ("s/.key_by(/.keyby(/", ["wrong.py:18", "no verb 'keyby'", "did you mean .key_by(…)?"]),
        ("s/event_time=/eventtime=/", ["wrong.py:17", "no argument 'eventtime'", "did you mean event_time?"]),
        ('s/col("celsius").mean/col("celsus").mean/', ["wrong.py:20", "no field 'celsus'", "did you mean 'celsius'?"]),
        ("s/return topology//", ["returned NoneType, not a Topology", "return topology"]),
        ('s/"per-minute", //', ["wrong.py:20", "aggregate()", "name"]),
    ],
)  # fmt: skip
def test_a_mistake_in_a_topology_is_reported_with_its_line(terminal: Terminal, wrong: str, words: list[str]) -> None:
    terminal.types(
        f"sed '{wrong}' rooms.py > wrong.py; agiledart run wrong.py:rooms --set readings=jsonl:readings.jsonl",
        *words,
        code=2,
    )


def test_ctrl_c_leaves_no_traceback(terminal: Terminal) -> None:
    """Of a run; `submit` and the rest have tests of their own, and the other terminals of this hour are left in this way."""
    begun = terminal.leaves_running(f"{RUN}readings=jsonl:readings.jsonl?follow=1", r"read \d|\d+ rows|rooms")
    terminal.ends(begun)


def a_start_that_fails(types: Types) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        types("agiledart agent --listen 203.0.113.9:9464", "203.0.113.9 is not an address of this machine. Its addresses:",
              "127.0.0.1", code=1, without="in use")  # fmt: skip
        types(f"agiledart agent --listen 127.0.0.1:{port}", f"Port {port} is in use by another process", "127.0.0.1:0",
              code=1, without="audit")  # fmt: skip
        types("test ! -e ~/.local/state/agiledart/network.json && echo founded nothing", "founded nothing")


def a_life_of_an_application(types: Types, host: str) -> None:
    follows = "'readings=jsonl:readings.jsonl?follow=1'"
    types(f"{SUBMIT} {follows}", f"path {host} (0 hops)", "agiledart stop rooms", without=" runs on ")
    types(f"{SUBMIT} {follows}", "already running", "agiledart stop rooms", code=1)
    for verb in ("status", "logs", "stop"):
        types(f"agiledart {verb} room", "No application 'room'. Did you mean rooms?", code=1)
    types("agiledart status rooms", "running for", "figures", "old")
    types("agiledart logs rooms", "has printed or logged nothing yet")
    types("agiledart forget rooms", "agiledart stop rooms", code=1)
    types(
        f"{SUBMIT} 'readings=jsonl:readings.jsonl?follow=1@nowhere' --replace",
        "'nowhere'",
        "rooms runs on, as it was",
        code=2,
    )
    types("agiledart status rooms", "rooms v1   running")
    types(f"{SUBMIT} {follows} --replace", "draining it first", "rooms v2")
    types("agiledart stop rooms")
    types("agiledart list", "ran for", "ended", "ago")
    types("agiledart forget rooms", "rooms v2 is forgotten")
    types("agiledart status rooms", "No application 'rooms'", code=1)
    types("echo nonsense > bad.jsonl")
    types(
        f"{SUBMIT} readings=jsonl:bad.jsonl --wait",
        "malformed 1",
        "Not one record could be read",
        "agiledart logs rooms",
        code=1,
    )
    types("agiledart logs rooms", "bad.jsonl:1 is no JSON")


def test_two_agents_report_every_user_mistake(terminal: Terminal) -> None:
    types = terminal.types
    a_start_that_fails(types)
    first = terminal.leaves_running("agiledart agent --listen 127.0.0.1:0", r"adart1\w{40,}\s", "add a node")
    assert _TOKEN.search(first.text.replace("\r", ""))
    types("agiledart agent --listen 127.0.0.1:0", "is in use by another agent", "--state-dir", code=1)
    host = types("hostname -s").strip()
    alone = terminal.leaves_running(
        "agiledart agent --listen 127.0.0.1:0 --state-dir two", r"add a node",
        f"is called {host}; this one is {host}-2", "starting a new one", "in use by another process",
    )  # fmt: skip
    terminal.ends(alone)
    types("agiledart token create --output node.token", "Wrote node.token; only you can read it", "--join @node.token")
    types("stat -c %a node.token", "600")
    join = "agiledart agent --listen 127.0.0.1:0 --state-dir two --join @node.token"
    types(join, "where nothing ever ran", "--leave-previous-network", code=1)
    second = terminal.leaves_running(join, r"Leave it for the token's\?")
    second.type("y")
    second.wait_for(re.compile(r"joined the ring of 2.*\n"), SECONDS)

    shown = types("agiledart nodes", "used", "free", f"{host}-2")
    address = next(
        word for line in shown.splitlines() if line.split()[:1] == [f"{host}-2"] for word in line.split() if ":" in word
    )
    types(f"{SUBMIT} readings=jsonl:readings.jsonl@{address} --dry-run", f"readings    1  {host}-2")
    types(f"{SUBMIT} readings=jsonl:readings.jsonl --dry-run", f"path {host} (0 hops)", "can be read", "can be written")
    types("agiledart list", "No applications yet", "agiledart submit")
    a_life_of_an_application(types, host)


def test_a_small_node_reports_at_once_that_it_is_full_with_a_fix(terminal: Terminal) -> None:
    terminal.leaves_running("agiledart agent --listen 127.0.0.1:0 --capacity 4 --state-dir small", "add a node")
    submit = "agiledart submit rooms.py:rooms --agent small --set 'readings=jsonl:readings.jsonl?follow=1'"
    terminal.types(submit, "running after")
    terminal.types("agiledart nodes --agent small", "used", "free")
    terminal.types(f"timeout 20 {submit} --set report=jsonl:more.jsonl --name more", "room", code=1)
