"""The mesh from Python: its requests, answers and refusals."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agiledart
from agiledart import CommandRefusedError, ConfigurationError, NoAgentError
from agiledart_control.mesh_client import MeshClient
from agiledart_node.wire.commands import (
    Command,
    Forget,
    ListApplications,
    Logs,
    MoveStage,
    ScaleStage,
    Status,
    Stop,
    Submit,
    Tap,
)
from agiledart_node.wire.control_messages import ControlRefusal
from tests.unit.cli.fake_agent import FakeAgent

CODE = """
from agiledart import Sink, Source, Topology


def flow(rows: Source[int], out: Sink[int], limit: int = 3, strict: bool = False) -> Topology:
    topology = Topology("flow")
    topology.source("rows", rows).filter(lambda row: row < limit, "small").sink("out", out)
    return topology
"""


class Answers:
    """An agent's answers; the application ends at the third request of its status."""

    def __init__(self) -> None:
        self.seen: list[Command] = []

    def __call__(self, command: Command) -> list[Any]:
        self.seen.append(command)
        match command:
            case Submit(name="refused"):
                return [ControlRefusal(0, "flow runs already.", 1, "owner")]
            case Submit():
                return [{"name": "flow", "placement": {"rows": ["a1"]}}]
            case ListApplications():
                return [{"applications": [{"name": "flow"}, {"name": "other"}]}]
            case Status(name="flow"):
                ended = sum(isinstance(known, Status) for known in self.seen) >= 3
                return [{"state": "finished" if ended else "running"}]
            case Status():
                return [ControlRefusal(0, "There is no application of this name.", 2, "")]
            case Logs():
                lines = [] if command.after else [{"node": "a1", "step": "filter", "text": "hello"}]
                return [{"lines": lines, "after": {"a1": 1}, "state": "running", "silent_nodes": []}]
            case Tap():
                rows = [{"node": "a1", "instance": 0, "time_ms": None, "row": {"value": n}} for n in range(2)]
                return [{"rows": rows, "after": {"a1": 2}, "state": "finished" if command.after else "running"}]
            case _:
                return [{"state": "stopped"}]


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def mesh(tmp_path: Path, answers: Answers) -> Iterator[MeshClient]:
    folder = tmp_path / "a1"
    folder.mkdir()
    (tmp_path / "flow.py").write_text(CODE)
    with FakeAgent(folder, answers), agiledart.connect(str(folder)) as made:
        yield made


def submitted(answers: Answers) -> Submit:
    return next(command for command in answers.seen if isinstance(command, Submit))


def test_it_submits_as_the_command_line_does(mesh: MeshClient, answers: Answers, tmp_path: Path) -> None:
    settings = {"rows": f"csv:{tmp_path}/in.csv", "out": f"csv:{tmp_path}/out.csv", "limit": 5, "strict": True}
    application = mesh.submit(
        f"{tmp_path}/flow.py:flow", settings, delivery="exactly-once", executors=2, placement="hybrid"
    )
    command = submitted(answers)
    assert command.placement == "hybrid"
    assert (application.name, command.delivery, command.executors, command.dry_run) == (
        "flow",
        "exactly-once",
        2,
        False,
    )
    assert mesh.dry_run(f"{tmp_path}/flow.py:flow", settings)["placement"] == {"rows": ["a1"]}
    assert answers.seen[-1] == Submit("", command.specification, command.bundle, dry_run=True, delivery="survive")


def test_refusals_are_exceptions_with_the_agents_sentence(mesh: MeshClient, tmp_path: Path) -> None:
    settings = {"rows": f"csv:{tmp_path}/in.csv", "out": f"csv:{tmp_path}/out.csv"}
    with pytest.raises(CommandRefusedError, match=r"^flow runs already\.$") as refusal:
        mesh.submit(f"{tmp_path}/flow.py:flow", settings, name="refused")
    assert refusal.value.reason == "owner"
    with pytest.raises(ConfigurationError, match="limits"):
        mesh.submit(f"{tmp_path}/flow.py:flow", {**settings, "limits": 5})
    with pytest.raises(CommandRefusedError, match="no application"):
        mesh.application("nothing")


def test_an_application_is_watched_and_ended(mesh: MeshClient, answers: Answers) -> None:
    assert [application.name for application in mesh.applications()] == ["flow", "other"]
    application = mesh.application("flow")
    assert [tuple(line) for line in application.logs()] == [("a1", "filter", "hello")]
    assert [row.row["value"] for row in application.tap("filter")] == [0, 1, 0, 1]
    assert [row.row["value"] for row in application.tap("filter", limit=3)] == [0, 1, 0]
    assert not application.has_ended
    assert application.wait()["state"] == "finished"
    application.scale("filter", 2)
    application.move("filter", "a2")
    application.stop(now=True)
    application.forget()
    assert answers.seen[-4:] == [
        ScaleStage("flow", "filter", 2),
        MoveStage("flow", "filter", "a2"),
        Stop("flow", True),
        Forget("flow"),
    ]


def test_a_function_of_a_file_is_a_target_and_a_cell_of_a_notebook_is_none(
    mesh: MeshClient, answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    import flow  # type: ignore[import-not-found]

    settings = {"rows": f"csv:{tmp_path}/in.csv", "out": f"csv:{tmp_path}/out.csv"}
    assert mesh.submit(flow.flow, settings).name == "flow"
    cell: dict[str, Any] = {}
    exec(compile(CODE, "<ipython-input-1>", "exec"), cell)
    with pytest.raises(ConfigurationError, match=r"%%writefile rooms\.py"):
        mesh.submit(cell["flow"], settings)
    with pytest.raises(ConfigurationError, match="inside another function"):
        mesh.submit(lambda: flow.flow, settings)


def test_a_lost_connection_is_opened_again(tmp_path: Path) -> None:
    answered = Answers()
    with FakeAgent(
        tmp_path, lambda command: [None] if len(answered.seen) < 1 and answered(command) else answered(command)
    ):
        mesh = agiledart.connect(str(tmp_path))
        with pytest.raises(NoAgentError, match="was lost"):
            mesh.applications()
        assert len(mesh.applications()) == 2
        mesh.close()
        mesh.close()
    with pytest.raises(NoAgentError):
        agiledart.connect(str(tmp_path / "nothing"))


def test_an_interrupted_request_ends_at_once(tmp_path: Path) -> None:
    asked, released = threading.Event(), threading.Event()

    def silent(_: Command) -> list[Any]:
        asked.set()
        released.wait(60)
        return []

    with FakeAgent(tmp_path, silent):
        mesh = agiledart.connect(str(tmp_path))
        client = mesh._client
        assert client is not None
        ended: list[BaseException] = []

        def ask() -> None:
            try:
                mesh.applications()
            except BaseException as error:  # noqa: BLE001
                ended.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(60)
        client.interrupt()
        thread.join(60)
        assert isinstance(ended[0], NoAgentError)
        mesh.close()
        released.set()


def test_the_same_is_awaited(mesh: MeshClient, tmp_path: Path) -> None:
    async def watched() -> tuple[list[str], list[int], str]:
        async with agiledart.connect_async(str(tmp_path / "a1")) as opened:
            names = [application.name for application in await opened.applications()]
            application = await opened.application("flow")
            values = [row.row["value"] async for row in application.tap("filter", limit=3)]
            return names, values, (await application.wait())["state"]

    assert asyncio.run(watched()) == (["flow", "other"], [0, 1, 0], "finished")
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(agiledart.connect_async().nodes())
