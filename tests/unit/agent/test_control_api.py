"""Requests are numbered, roles checked, answers brought to who asked and to nobody else."""

import asyncio
import json
from pathlib import Path

import pytest

from agiledart_agent.control.control_api import CONTROL, MAX_OPEN_REQUESTS, Client, ControlApi
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import FrameKind, FrameReader, frame
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_node.wire.commands import (
    ROLES_BY_COMMAND,
    Answer,
    Command,
    ControlMessage,
    CreateToken,
    Info,
    Leave,
    ListApplications,
    Logs,
    Nodes,
    Progress,
    Refusal,
    Request,
    Route,
    Status,
    Stop,
    Submit,
    Tap,
)

ONE_OF_EACH: tuple[Command, ...] = (
    Submit("x", b"", b""), ListApplications(), Status("x"), Stop("x"), Nodes(), Route("0"), Logs("x"), Info(),
    CreateToken(), Leave(), Tap("x", "y"),
)  # fmt: skip


Asked = list[tuple[int, Command, str]]
"""Requests that went on: number, command, who."""


class Asker:
    """A client and what it got."""

    def __init__(self, api: ControlApi, role: str = "admin") -> None:
        self.api, self.got = api, list[ControlMessage]()
        self.client = Client(role, role, lambda _, body: self.got.append(CONTROL.decode(body)))

    def ask(self, number: int, command: Command) -> None:
        self.api.receive(self.client, CONTROL.encode(Request(number, command)))


@pytest.fixture
def asked() -> Asked:
    return []


@pytest.fixture
def refused() -> list[str]:
    return []


@pytest.fixture
def api(asked: Asked, refused: list[str]) -> ControlApi:
    return ControlApi(lambda *request: asked.append(request), lambda reason, _: refused.append(reason))


@pytest.mark.parametrize("role", ["admin", "submitter", "reader", "agent", "executor"])
@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_every_role_at_every_command(
    api: ControlApi, asked: Asked, refused: list[str], role: str, command: Command
) -> None:
    allowed = {
        "admin": True,
        "submitter": not isinstance(command, CreateToken | Leave),
        "reader": not isinstance(command, CreateToken | Leave | Submit | Stop | Tap),
    }.get(role, False)
    asker = Asker(api, role)
    asker.ask(1, command)
    assert (len(asked) == 1) is allowed
    assert (refused == ["role"]) is not allowed
    assert not asker.got if allowed else isinstance(asker.got[0], Refusal)


def test_every_command_has_roles() -> None:
    assert set(ROLES_BY_COMMAND) == {type(command) for command in ONE_OF_EACH}


def test_answers_find_their_asker(api: ControlApi, asked: Asked) -> None:
    one, two = Asker(api), Asker(api)
    one.ask(7, Nodes())
    two.ask(7, ListApplications())
    api.progress(asked[1][0], "soon")
    api.answer(asked[0][0], {"a": 1})
    api.refuse(asked[1][0], "no", 2)
    api.answer(asked[1][0], {"late": True})
    assert one.got == [Answer(7, b'{"a":1}')]
    assert two.got == [Progress(7, "soon"), Refusal(7, "no", 2)]


def test_a_client_that_went_away_gets_nothing(api: ControlApi, asked: Asked) -> None:
    asker = Asker(api)
    asker.ask(1, Nodes())
    api.forget(asker.client)
    api.answer(asked[0][0], {})
    assert asker.got == []


def test_open_requests_are_bounded_and_not_doubled(api: ControlApi, asked: Asked) -> None:
    asker = Asker(api)
    asker.ask(1, Nodes())
    asker.ask(1, Nodes())
    assert isinstance(asker.got[0], Refusal)
    for number in range(2, MAX_OPEN_REQUESTS + 5):
        asker.ask(number, Nodes())
    assert len(asked) == MAX_OPEN_REQUESTS


def test_what_is_no_request_closes_the_connection(api: ControlApi) -> None:
    asker = Asker(api)
    with pytest.raises(RemoteProtocolError):
        api.receive(asker.client, CONTROL.encode(Answer(1, b"")))
    with pytest.raises(RemoteProtocolError):
        api.receive(asker.client, b"\xc1")


def test_the_socket_belongs_to_its_owner_and_survives_garbage(tmp_path: Path) -> None:
    seen: list[int] = []
    refused: list[str] = []

    async def play() -> object:
        def ask(number: int, command: Command, who: str) -> None:
            seen.append(number)
            control.answer(number, {"who": who})

        control = ControlApi(ask, lambda reason, _: refused.append(reason))
        path = tmp_path / "c.sock"
        await control.listen(path)
        assert path.stat().st_mode & 0o777 == 0o600
        _, rude = await asyncio.open_unix_connection(path)
        rude.write(b"\xff" * 100)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(frame(FrameKind.CONTROL, CONTROL.encode(Request(3, Info()))))
        frames = FrameReader(1 << 20)
        frames.feed(await reader.read(1000))
        item = frames.next()
        assert item is not None
        writer.close()
        rude.close()
        await control.close()
        assert not path.exists()
        answer = CONTROL.decode(item[1])
        assert isinstance(answer, Answer)
        return json.loads(answer.body)

    assert str(asyncio.run(play())).startswith("{'who': 'uid")
    assert seen == [1]
    assert refused == ["kind"] or refused == ["oversize"]


def test_an_answer_that_is_too_large_is_refused_in_words(api: ControlApi, asked: Asked) -> None:
    asker = Asker(api)
    asker.ask(1, Info())
    api.answer(asked[-1][0], {"text": "x" * MAX_FRAME_BYTES})
    (said,) = asker.got
    assert isinstance(said, Refusal)
    assert "more than a frame may have" in said.text


def test_a_state_directory_too_deep_for_a_socket_is_named(api: ControlApi, tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="shorter --state-dir"):
        asyncio.run(api.listen(tmp_path / ("x" * 110) / "control.sock"))
