"""The control client: finding an agent, asking it, and what a user reads when it does not answer."""

import json
import os
from pathlib import Path

import pytest

from agiledart_cli.errors import exit_code_of
from agiledart_control.agent_place import AGENT_FILE, MESH_FILE, AgentPlace, find_agent
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed
from agiledart_kernel.frames import FrameKind, frame
from agiledart_node.wire.commands import ListApplications, Nodes
from agiledart_node.wire.control_messages import ControlRefusal
from tests.unit.cli.fake_agent import FakeAgent, Reply

NOBODY = 2**22 + 1
"""A process number that Linux does not give."""


def test_an_answer_is_returned_after_its_progress(tmp_path: Path) -> None:
    said: list[str] = []
    with (
        FakeAgent(tmp_path, lambda _: ["one", "two", {"nodes": []}]) as agent,
        ControlClient(find_agent(str(tmp_path))) as client,
    ):
        assert client.ask(Nodes(), on_progress=said.append) == {"nodes": []}
        assert client.ask(ListApplications()) == {"nodes": []}
    assert agent.asked == [Nodes(), ListApplications()]
    assert said == ["one", "two"]


def _refused_ask(folder: Path, reply: Reply, timeout: float = 5.0) -> AgileDartError:
    """The error of asking an agent that replies so."""
    with FakeAgent(folder, reply), ControlClient(find_agent(str(folder))) as client:
        try:
            client.ask(Nodes(), timeout=timeout)
        except AgileDartError as error:
            return error
    raise AssertionError("an answer came")


def test_a_refusal_carries_its_exit_code(tmp_path: Path) -> None:
    error = _refused_ask(tmp_path, lambda _: [ControlRefusal(0, "no such step", 2)])
    assert isinstance(error, CommandRefusedError)
    assert str(error) == "no such step"
    assert exit_code_of(error) == 2


def test_an_agent_that_disconnects_counts_as_gone(tmp_path: Path) -> None:
    error = _refused_ask(tmp_path, lambda _: [None])
    assert isinstance(error, NoAgentError)
    assert "was lost" in str(error)


def test_a_silent_agent_counts_as_gone(tmp_path: Path) -> None:
    error = _refused_ask(tmp_path, lambda _: [], timeout=0.05)
    assert isinstance(error, NoAgentError)
    assert "has not answered for 0 s" in str(error)


@pytest.mark.parametrize("raw", [frame(FrameKind.CONTROL, b"\xff"), b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3])
def test_a_malformed_answer_of_an_agent_gives_no_traceback(tmp_path: Path, raw: bytes) -> None:
    error = _refused_ask(tmp_path, lambda _: [raw])
    assert isinstance(error, OperationFailed)
    assert "another protocol version" in str(error)


def test_without_an_agent_the_message_lists_the_paths_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # else a temporary folder in the home is shown as ~
    environment = {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with pytest.raises(NoAgentError) as caught:
        find_agent(None, environment)
    assert str(caught.value).startswith(f"No agent answers: none in {tmp_path}/agiledart, no --agent given.")
    assert 'agiledart up"' in str(caught.value)
    assert exit_code_of(caught.value) == 3


def test_the_socket_of_a_killed_agent_is_ignored(tmp_path: Path) -> None:
    (tmp_path / AGENT_FILE).write_text(json.dumps({"pid": NOBODY, "name": "a1"}))
    with pytest.raises(NoAgentError, match="No agent runs in"):
        find_agent(str(tmp_path))
    (tmp_path / AGENT_FILE).write_text("{")
    with pytest.raises(NoAgentError, match="No agent runs in"):
        find_agent(str(tmp_path))


def test_the_default_path_is_preferred_to_a_mesh(tmp_path: Path) -> None:
    usual, a1, a2 = tmp_path / "agiledart", tmp_path / "m" / "a1", tmp_path / "m" / "a2"
    for folder in (usual, a1, a2):
        folder.mkdir(parents=True)
    environment = {"XDG_STATE_HOME": str(tmp_path), "HOME": "/"}
    (usual / MESH_FILE).write_text(json.dumps({"pid": os.getpid(), "agents": [str(a1), str(a2)]}))
    (a2 / AGENT_FILE).write_text(json.dumps({"pid": os.getpid(), "name": "a2"}))
    sentences: list[str] = []
    expected = AgentPlace(socket=a2 / "control.sock", name="a2")
    assert find_agent(None, environment, notify=sentences.append) == expected
    assert sentences == [f"no --agent given: using a2 in {a2}"]
    (usual / AGENT_FILE).write_text(json.dumps({"pid": os.getpid(), "name": "pi1"}))
    assert find_agent(None, environment).name == "pi1"
    (usual / AGENT_FILE).unlink()
    (usual / MESH_FILE).write_text(json.dumps({"pid": NOBODY, "agents": [str(a2)]}))
    with pytest.raises(NoAgentError):
        find_agent(None, environment)


def test_addresses_are_distinguished_from_typos(tmp_path: Path) -> None:
    assert find_agent("pi1:9464").address == "pi1:9464"
    assert find_agent("[::1]:9464").address == "[::1]:9464"
    with pytest.raises(ConfigurationError, match="state directory, a socket or HOST:PORT"):
        find_agent("pi1")
    with pytest.raises(NoAgentError, match="neither a state directory nor a socket"):
        find_agent(str(tmp_path / "nothing"))


def test_a_remote_agent_requires_an_identity() -> None:
    with pytest.raises(ConfigurationError, match="--identity @FILE with a token"):
        ControlClient(find_agent("pi1:9464"))
    with pytest.raises(ConfigurationError, match="There is no identity 'nonsense'"):
        ControlClient(find_agent("pi1:9464"), "nonsense")
    with pytest.raises(OperationFailed, match="The join token is damaged"):
        ControlClient(find_agent("pi1:9464"), "adart1nonsense")
