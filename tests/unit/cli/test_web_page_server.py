"""The page's server on a real port, in front of an agent that is a double."""

import gzip
import http.client
import json
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.web import mesh_watcher, page_server, page_submission
from agiledart_cli.web.mesh_watcher import MeshWatcher
from agiledart_cli.web.page_requests import PageRequests
from agiledart_cli.web.page_server import FILES, MAX_BODY, PageServer
from agiledart_cli.web.page_submission import PageSubmissions
from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_node.wire.commands import Command, ListApplications, Logs, Nodes, Status, Stop
from tests.unit.connectors.reading import until

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"


def node(name: str) -> dict[str, Any]:
    return {
        "name": name, "node_id": f"{hash(name) & 0xFFFF:032x}", "incarnation": 1, "address": "", "zone": "", "host": "",
        "is_this_node": name == "a1", "rtt_ms": 1.0, "answers": True, "instances": 1, "capacity": 4, "applications": [],
    }  # fmt: skip


class FakeAgent:
    """Answers as an agent would; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.nodes = ["a1", "a2"]
        self.rows_in = 0
        self.is_away = False
        self.open_connections = 0

    def connect(self) -> Any:
        if self.is_away:
            raise NoAgentError("No agent answers at a1.")
        self.open_connections += 1
        return FakeClient(self)

    def ask(self, command: Command) -> Any:
        if self.is_away:
            raise NoAgentError("The connection to the agent at a1 was lost.")
        self.asked.append(command)
        match command:
            case Nodes():
                return {"nodes": [node(name) for name in self.nodes], "known": len(self.nodes)}
            case ListApplications():
                return {"applications": [{"name": HOSTILE, "version": 1, "state": "running", "reason": ""}]}
            case Status():
                self.rows_in += 10
                return self.status()
            case Logs():
                return {"name": HOSTILE, "state": "running", "lines": [], "after": {"a1": 7}, "silent_nodes": []}
            case Stop():
                return {"name": HOSTILE, "version": 1, "state": "stopped", "summary": {}}
        raise CommandRefusedError("unknown", 1)

    def status(self) -> dict[str, Any]:
        step = {"rows_in": self.rows_in, "rows_out": self.rows_in}
        instance = {"index": 0, "node": "a1", "busy_ns": 0, "queued_rows": 0, "steps": {"in": step}}
        return {
            "name": HOSTILE, "version": 1, "state": "running", "waiting": [], "silent_nodes": [], "edges": [],
            "stages": [{"name": "in", "kind": "source", "instances": [instance]}],
            "summary": {"records_in": self.rows_in, "paced": True, "latency_ms": {"out": {"p50": 1.0, "p99": 2.0}}},
        }  # fmt: skip


class FakeClient:
    def __init__(self, agent: FakeAgent) -> None:
        self._agent = agent

    def ask(self, command: Command, **_: Any) -> Any:
        return self._agent.ask(command)

    def close(self) -> None:
        self._agent.open_connections -= 1


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def start(agent: FakeAgent, tmp_path: Path) -> Iterator[Callable[..., PageServer]]:
    started: list[PageServer] = []

    def made(may_write: bool = False) -> PageServer:
        watcher = MeshWatcher(agent.connect)
        submissions = PageSubmissions(None, None, tmp_path) if may_write else None
        server = PageServer(0, watcher, PageRequests(agent.connect, submissions), time.monotonic)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        started.append(server)
        return server

    yield made
    for server in started:
        server.shutdown()
        server.server_close()
        server.watcher.close()


@pytest.fixture
def server(start: Callable[..., PageServer]) -> PageServer:
    return start()


def ask(
    server: PageServer, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sent = {"Origin": f"http://127.0.0.1:{port}", "Host": f"127.0.0.1:{port}"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    text = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, text, sent)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def session_of(server: PageServer) -> str:
    token = server.address.partition("#")[2]
    status, headers, _ = ask(server, "POST", "/session", {"token": token})
    assert status == 200
    return headers["Set-Cookie"].partition(";")[0]


class Viewer:
    """A browser that follows the events."""

    def __init__(self, server: PageServer, cookie: str, application: str = "") -> None:
        port = server.server_address[1]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        query = f"?application={application}" if application else ""
        self.socket.sendall(
            f"GET /events{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n".encode()
        )
        self._file = self.socket.makefile("rb")

    def event(self) -> dict[str, Any]:
        for line in self._file:
            if line.startswith(b"data: "):
                return dict(json.loads(line.removeprefix(b"data: ")))
        raise AssertionError("the stream has ended")

    def close(self) -> None:
        self._file.close()
        self.socket.close()


def test_the_files_of_the_page_load_nothing_from_elsewhere_and_are_small(server: PageServer) -> None:
    total = 0
    for path in FILES:
        status, headers, body = ask(server, "GET", path)
        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        text = body.replace(b"http://www.w3.org/", b"")
        assert b"http://" not in text
        assert b"https://" not in text
        total += len(gzip.compress(body))
    assert total <= 80_000
    shipped = {entry.name for entry in (files("agiledart_cli.web") / "static").iterdir()}
    assert shipped == {name for name, _ in FILES.values()}


def test_a_request_without_a_session_gets_no_answer_and_asks_no_agent(server: PageServer, agent: FakeAgent) -> None:
    assert ask(server, "GET", "/events")[0] == 401
    assert ask(server, "GET", "/events", Cookie="agiledart-1=x")[0] == 401
    assert ask(server, "POST", "/read/logs", {"name": "app"})[0] == 401
    assert agent.asked == []


def test_the_address_works_once(server: PageServer) -> None:
    token = server.address.partition("#")[2]
    assert ask(server, "POST", "/session", {"token": token})[0] == 200
    status, _, body = ask(server, "POST", "/session", {"token": token})
    assert status == 403
    assert b"used already" in body


@pytest.mark.parametrize("token", [None, 1, "x", ["x"]])
def test_a_wrong_token_is_refused(server: PageServer, token: Any) -> None:
    assert ask(server, "POST", "/session", {"token": token})[0] == 403


def test_another_name_of_this_machine_is_refused(server: PageServer) -> None:
    cookie = session_of(server)
    for path in ("/", "/events"):
        assert ask(server, "GET", path, Host="rebound.example", Cookie=cookie)[0] == 421


def test_requests_of_other_pages_are_refused(server: PageServer) -> None:
    cookie = session_of(server)
    body = {"name": "app"}
    assert ask(server, "POST", "/read/logs", body, Cookie=cookie)[0] == 200
    assert ask(server, "POST", "/read/logs", body, Cookie=cookie, Origin="http://evil.example")[0] == 403
    assert ask(server, "POST", "/read/logs", body, Cookie=cookie, Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(server, "GET", "/events", Cookie=cookie, Sec_Fetch_Site="cross-site")[0] == 401


def test_a_viewer_sees_nodes_applications_and_rates(server: PageServer, agent: FakeAgent) -> None:
    viewer = Viewer(server, session_of(server), "app")
    first = viewer.event()
    assert [row["name"] for row in first["nodes"]] == ["a1", "a2"]
    assert first["applications"][0]["name"] == HOSTILE
    assert (first["may_write"], first["away_s"]) == (False, None)
    second = viewer.event()
    assert second["applications"][0]["figures"]["in_rate"] > 0
    viewer.close()


def test_a_node_that_has_gone_is_shown_as_gone(server: PageServer, agent: FakeAgent) -> None:
    viewer = Viewer(server, session_of(server))
    viewer.event()
    agent.nodes.remove("a2")
    while (event := viewer.event())["nodes"][-1]["gone_s"] is None:
        pass
    assert [(row["name"], row["gone_s"] is None) for row in event["nodes"]] == [("a1", True), ("a2", False)]
    viewer.close()


def test_the_page_reports_an_agent_that_is_away_and_its_return(server: PageServer, agent: FakeAgent) -> None:
    viewer = Viewer(server, session_of(server))
    assert viewer.event()["away_s"] is None
    agent.is_away = True
    while (event := viewer.event())["away_s"] is None:
        pass
    assert "lost" in event["reason"] or "No agent" in event["reason"]
    agent.is_away = False
    while viewer.event()["away_s"] is not None:
        pass
    viewer.close()


def test_without_viewers_nothing_is_asked(server: PageServer, agent: FakeAgent) -> None:
    viewer = Viewer(server, session_of(server))
    viewer.event()
    viewer.close()
    until(lambda: not server.watcher.is_sampling)
    until(lambda: agent.open_connections == 0)
    asked = len(agent.asked)
    assert not server.watcher.is_sampling
    assert len(agent.asked) == asked


def test_a_page_that_only_reads_stops_nothing(server: PageServer, agent: FakeAgent) -> None:
    status, _, body = ask(server, "POST", "/write/stop", {"name": "app"}, Cookie=session_of(server))
    assert (status, b"only reads" in body) == (409, True)
    assert not any(isinstance(command, Stop) for command in agent.asked)


def test_a_page_that_may_write_stops_an_application(start: Callable[..., PageServer], agent: FakeAgent) -> None:
    server = start(may_write=True)
    assert ask(server, "POST", "/write/stop", {"name": "app", "now": True}, Cookie=session_of(server))[0] == 200
    assert agent.asked == [Stop("app", now=True)]


def submission(target: str = "rooms.py:build", **more: Any) -> dict[str, Any]:
    return {"target": target, "settings": ["rows=csv:rows.csv"], "name": "", **more}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """Words of the submissions that were run; a stand-in answers as `agiledart submit` would."""
    (tmp_path / "rooms.py").touch()
    words_of_runs: list[tuple[str, ...]] = []

    def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        words_of_runs.append(tuple(words))
        fails = "--name=wrong" in words
        text = "" if fails else json.dumps({"name": "rooms", "placement": {"in": ["a1"]}})
        return subprocess.CompletedProcess([], 1 if fails else 0, text, "There is no node pi9.\x1b[2J" if fails else "")

    monkeypatch.setattr(page_submission, "_finished", run)
    return words_of_runs


def test_a_submission_shows_its_placement_first(start: Callable[..., PageServer], ran: list[tuple[str, ...]]) -> None:
    server = start(may_write=True)
    cookie = session_of(server)
    status, _, body = ask(server, "POST", "/write/submit", submission(), Cookie=cookie)
    assert (status, b"Look first" in body, ran) == (409, True, [])
    status, _, body = ask(server, "POST", "/write/plan", submission(), Cookie=cookie)
    assert (status, json.loads(body)["placement"]) == (200, {"in": ["a1"]})
    assert ask(server, "POST", "/write/submit", submission(settings=["rows=other"]), Cookie=cookie)[0] == 409
    assert ask(server, "POST", "/write/submit", submission(), Cookie=cookie)[0] == 200
    words = ("--set=rows=csv:rows.csv", "-o", "json", "--", "rooms.py:build")
    assert ran == [("--dry-run", *words), words]
    _, _, body = ask(server, "POST", "/read/submission", {"name": "rooms"}, Cookie=cookie)
    assert json.loads(body) == submission()
    status, _, body = ask(server, "POST", "/write/plan", submission(name="wrong"), Cookie=cookie)
    assert (status, json.loads(body)["error"]) == (409, "There is no node pi9.\\x1b[2J")


def test_a_page_that_only_reads_submits_nothing(server: PageServer, ran: list[tuple[str, ...]]) -> None:
    cookie = session_of(server)
    for what in ("plan", "submit"):
        assert ask(server, "POST", f"/write/{what}", submission(), Cookie=cookie)[0] == 409
    assert ran == []


@pytest.mark.parametrize(
    "body",
    [
        submission("../rooms.py:build"),
        submission("/etc/passwd:build"),
        submission("none.py:build"),
        submission("--dry-run"),
        submission(""),
        submission(settings=["--agent"]),
        submission(settings=["a=b"] * 65),
        submission(settings={"a": "b"}),
        submission(name=7),
        submission(name="x\n"),
    ],
)
def test_a_malformed_or_foreign_submission_is_refused(
    start: Callable[..., PageServer], ran: list[tuple[str, ...]], body: Any
) -> None:
    server = start(may_write=True)
    status, _, text = ask(server, "POST", "/write/plan", body, Cookie=session_of(server))
    assert (status, ran) == (409, [])
    assert "error" in json.loads(text)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[", 400),
        (b"[1]", 400),
        (b"[" * 60_000, 400),
        ({"name": 1}, 409),
        ({"name": "x" * 257}, 409),
        ({"name": "app", "after": [1]}, 409),
        ({"name": "app", "after": {"a1": "x"}}, 409),
        ({"name": "app", "after": {"a1": 1 << 63}}, 409),
    ],
)
def test_a_malformed_request_gets_one_sentence(server: PageServer, body: Any, status: int) -> None:
    answered, _, text = ask(server, "POST", "/read/logs", body, Cookie=session_of(server))
    assert answered == status
    assert "error" in json.loads(text)


def test_a_large_request_is_refused_unread(server: PageServer) -> None:
    headers = {"Cookie": session_of(server), "Content_Length": str(MAX_BODY + 1)}
    assert ask(server, "POST", "/read/logs", None, **headers)[0] == 413


@pytest.fixture
def thousand_descriptors() -> Iterator[None]:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4_096), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


@pytest.mark.usefixtures("thousand_descriptors")
def test_a_thousand_idle_connections_are_bounded_and_ask_no_agent(server: PageServer, agent: FakeAgent) -> None:
    address = ("127.0.0.1", server.server_address[1])
    before = set(threading.enumerate())  # other tests of this process leave threads
    with ExitStack() as idle:  # also after a failure: later tests of this process need low numbers of descriptors
        for _ in range(1_000):
            idle.enter_context(socket.create_connection(address))
        until(lambda: server.refused >= 1_000 - page_server.MAX_CONNECTIONS)
        assert len(set(threading.enumerate()) - before) <= page_server.MAX_CONNECTIONS
    until(lambda: _answers(server))
    assert agent.asked == []


def test_a_viewer_that_reads_nothing_is_cut_and_others_go_on(
    server: PageServer, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server._PageHandler, "timeout", 3)
    monkeypatch.setattr(mesh_watcher, "SAMPLE_SECONDS", 0.05)
    monkeypatch.setattr(mesh_watcher, "LEAST_PAUSE_SECONDS", 0.01)
    agent.nodes = [f"a{number}" for number in range(2_000)]  # events of 600 kB
    cookie = session_of(server)
    slow, quick = Viewer(server, cookie), Viewer(server, cookie)
    assert len(quick.event()["nodes"]) == 2_000
    until(lambda: len(server.watcher._viewers) == 2)
    until(lambda: quick.event() and len(server.watcher._viewers) == 1)  # a viewer that does not read is cut, too
    assert len(quick.event()["nodes"]) == 2_000
    slow.close()
    quick.close()


def test_the_cookie_of_another_server_or_a_forged_one_opens_nothing(
    start: Callable[..., PageServer], agent: FakeAgent
) -> None:
    first, second = start(), start()
    name, _, value = session_of(first).partition("=")
    for cookie in (
        f"{name}={value}",
        f"{second.access.cookie_name}={value}",
        f"{second.access.cookie_name}=",
        f"{name}={value}x",
    ):
        assert ask(second, "POST", "/read/logs", {"name": "app"}, Cookie=cookie)[0] == 401
        assert ask(second, "GET", "/events", Cookie=cookie)[0] == 401
    assert agent.asked == []


def _answers(server: PageServer) -> bool:
    try:
        return ask(server, "GET", "/")[0] == 200
    except OSError:
        return False
    except http.client.HTTPException:
        return False


def test_viewers_are_bounded(server: PageServer) -> None:
    cookie = session_of(server)
    viewers = [Viewer(server, cookie) for _ in range(page_server.MAX_VIEWERS)]
    for viewer in viewers:
        viewer.event()
    assert ask(server, "GET", "/events", Cookie=cookie)[0] == 503
    for viewer in viewers:
        viewer.close()
