"""A password of a connector reaches it, and stands in plain nowhere: wires, disks, records, logs, processes, JSON, traces."""

import json
import os
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from agiledart_node.wire.commands import Info, ListApplications, Logs, Status
from tests.e2e.mesh import AgentProcess, Mesh, cli, executors_of, wait_for
from tests.ports import lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PASSWORD = "s3cret-0f-the-Plant/9"

CODE = '''
"""Posts readings; one of the two says aloud what it should not."""
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Reading(NamedTuple):
    value: float

def tells(reading: Reading) -> Reading:
    from agiledart_connectors.credentials import secret
    print("the token is", secret("hook"), flush=True)
    if reading.value == 3:
        raise ValueError(f"{secret('hook')} is not accepted")
    return reading

def _topology(step):
    def build(readings: Source[Reading], report: Sink[Reading], name: str = "posts") -> Topology:
        topology = Topology(name)
        topology.source("readings", readings).map(step).sink("report", report)
        return topology
    return build

def quietly(reading: Reading) -> Reading:
    return reading

posts = _topology(quietly)
babbles = _topology(tells)
'''


class Wire:
    """Passes connections on to one port and keeps all bytes."""

    def __init__(self) -> None:
        self.target = 0
        self.bytes = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(("127.0.0.1", self.target))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        try:
            while data := near.recv(1 << 16):
                self.bytes += data
                far.sendall(data)
        except OSError:
            pass
        for one in (near, far):
            one.close()


class Hook:
    """A server that wants the token, and then answers 200."""

    def __init__(self) -> None:
        hook = self
        self.authorizations: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                hook.authorizations.append(self.headers.get("Authorization", ""))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()


def tapped(folder: Path, name: str) -> tuple[AgentProcess, Wire]:
    """An agent that others reach over a wire that keeps what passes."""
    wire, port = Wire(), lasting_port()
    wire.target = port
    return AgentProcess(name, folder, "--listen", f"127.0.0.1:{port}", "--advertise", f"127.0.0.1:{wire.port}"), wire


def command_lines() -> bytes:
    found = b""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            for what in ("cmdline", "environ"):
                try:
                    found += (process / what).read_bytes()
                except OSError:
                    continue
    return found


def submit(made: Mesh, folder: Path, entry: str, name: str, hook: Hook, asked: AgentProcess) -> str:
    told = cli(
        "submit", f"{folder / 'code.py'}:{entry}", "--name", name, "--set", f"readings=csv:{folder / 'in.csv'}@a2",
        "--set", f"report=http://127.0.0.1:{hook.port}/in?credentials=hook@a2", "--agent", str(asked.state_dir),
    )  # fmt: skip
    return told.stdout + told.stderr


def stands_nowhere(seen: str, agents: tuple[AgentProcess, ...], wires: tuple[Wire, ...]) -> None:
    """In what people saw, in logs, lists of processes, bytes between agents, files."""
    files = [path for agent in agents for path in agent.state_dir.rglob("*") if path.is_file()]
    places = {
        "what people see": seen.encode(),
        "logs": "".join(agent.log.read_text() for agent in agents).encode(),
        "processes": command_lines(),
        **{f"wire to {agent.name}": bytes(wire.bytes) for agent, wire in zip(agents, wires, strict=True)},
        **{str(path): path.read_bytes() for path in files},
    }
    assert len(wires[0].bytes) > 5_000
    assert len(files) > 20
    for place, content in places.items():
        for form in (PASSWORD, PASSWORD[:-2], quote(PASSWORD, safe="")):
            assert form.encode() not in content, place


def test_a_password_reaches_its_connector_and_nothing_else(tmp_path: Path) -> None:
    hook, made = Hook(), Mesh(Path(os.environ.get("TMPDIR", "/tmp")) / f"adt-secret-{os.getpid()}")
    made.folder.mkdir()
    agents, wires = zip(*(tapped(made.folder, name) for name in ("a1", "a2")), strict=True)
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "in.csv").write_text("value\n1\n2\n3\n")
    try:
        made.add(list(agents))
        founder = agents[0]
        at = ("--agent", str(founder.state_dir))

        seen = submit(made, tmp_path, "posts", "posts", hook, founder)
        assert "there is no credential 'hook' on this node. Give it one:  agiledart secret set hook --to NODE" in seen
        for application in ("posts", "babbles"):
            told = cli("secret", "set", "hook", "--to", "a2", "--for", application, *at, input=PASSWORD + "\n")
            assert told.returncode == 0, told.stderr
            seen += told.stdout + told.stderr
        shown = cli("secret", "list", "-o", "json", *at).stdout
        rows = json.loads(shown)["secrets"]
        assert [(row["name"], row["application"], row["node"]) for row in rows] == [
            ("hook", "babbles", "a2"), ("hook", "posts", "a2")
        ]  # fmt: skip

        # Another key that takes the name first gets nothing: a2's own socket signs with a2's key.
        assert "there is no credential 'hook'" in submit(made, tmp_path, "posts", "babbles", hook, agents[1])
        seen += submit(made, tmp_path, "posts", "posts", hook, founder)
        wait_for(lambda: hook.authorizations, 20, "the rows are posted")
        assert set(hook.authorizations) == {f"Bearer {PASSWORD}"}
        cli("forget", "babbles", *at)
        seen += submit(made, tmp_path, "babbles", "babbles", hook, founder)
        wait_for(lambda: founder.ask(Status("babbles"))["state"] == "failed", 20, "user code raised")
        lines = wait_for(lambda: founder.ask(Logs("babbles"))["lines"], 10, "lines of user code")
        assert any("the token is <secret hook>" in line["text"] for line in lines)
        failed = founder.ask(Status("babbles"))
        assert "<secret hook> is not accepted" in failed["reason"]

        seen += shown + cli("audit", "-o", "json", *at).stdout
        for agent in agents:
            for question in (
                Status("posts"),
                Status("babbles"),
                Logs("posts"),
                Logs("babbles"),
                ListApplications(),
                Info(),
            ):
                seen += json.dumps(agent.ask(question))
        stands_nowhere(seen, agents, wires)

        told = cli("secret", "remove", "hook", "--to", "a2", "--for", "posts", *at)
        assert told.returncode == 0, told.stderr
        told = cli("secret", "remove", "hook", "--to", "a2", "--for", "posts", *at)
        assert told.returncode == 1
        assert "there is no secret hook of yours for posts here (on a2)" in told.stderr
        assert executors_of(agents[0]) == []
    finally:
        made.close()
        shutil.rmtree(made.folder, ignore_errors=True)


def test_the_command_reports_mistakes(tmp_path: Path) -> None:
    told = cli("secret", "set", "../x", "--to", "a1", "--for", "x", "--agent", str(tmp_path), input="text")
    assert (told.returncode, "invalid name of a secret" in told.stderr) == (2, True)
    for wrong in ("", "two\nlines", "x" * 5_000):
        told = cli("secret", "set", "x", "--to", "a1", "--for", "x", "--agent", str(tmp_path), input=wrong)
        assert (told.returncode, "A secret is one line of 1 to 4,096 bytes" in told.stderr) == (2, True)
        assert "Traceback" not in told.stderr
