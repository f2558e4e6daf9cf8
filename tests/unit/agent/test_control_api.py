"""Requests are numbered, roles checked, answers brought to who asked and to nobody else."""

import asyncio
import json
from pathlib import Path
from typing import get_args

import pytest

from agiledart_agent.control.control_api import CONTROL, MAX_OPEN_REQUESTS, Client, ControlApi
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import FrameKind, FrameReader, frame
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_kernel.permissions import Asker
from agiledart_node.records.order_checks import CHECK, terms_of
from agiledart_node.wire.commands import (
    VERB_BY_COMMAND,
    Answer,
    Audit,
    Ban,
    Bans,
    BringCheckpoint,
    Checkpoints,
    Command,
    ControlMessage,
    CreateToken,
    DrainNode,
    ExplainRecovery,
    ExplainScaling,
    ExportCheckpoint,
    Forget,
    Info,
    Leave,
    ListApplications,
    Logs,
    Move,
    Nodes,
    Progress,
    ReadCheckpoint,
    RecoverRun,
    Refusal,
    RemoveCheckpoint,
    Renew,
    Request,
    Route,
    Scale,
    Secrets,
    SetSecret,
    Share,
    Status,
    Stop,
    Submit,
    Tap,
    Tokens,
)

ONE_OF_EACH: tuple[Command, ...] = (
    Submit("x", b"", b""), ListApplications(), Status("x"), Stop("x"), Nodes(), Route("0"), Logs("x"), Info(),
    CreateToken(), Leave(), Tap("x", "y"), Share("x", "00"), Ban("ab" * 32, 0), Bans(), Tokens(), Forget("x"), ExplainScaling("x"),
    Audit(), SetSecret("x", "00", "y"), Secrets(),
    ExplainRecovery("x"), Checkpoints("x"), ExportCheckpoint("x"), RemoveCheckpoint("x"), ReadCheckpoint("x", "0" * 64, 0),
    BringCheckpoint("x", "0" * 64, 1, 0, b""), Scale("x", "y", 2), Move("x", "y", "a1"), Renew(), DrainNode("a1"),
    RecoverRun("x", ("a1",)),
)  # fmt: skip


Asked = list[tuple[int, Request, Client]]
"""Requests that went on: number, command, who."""


class Caller:
    """A client and what it got."""

    def __init__(self, api: ControlApi, role: str = "admin", scope: str = "") -> None:
        self.api, self.got = api, list[ControlMessage]()
        self.client = Client(Asker(role, scope, b"k" * 32), role, lambda _, body: self.got.append(CONTROL.decode(body)))

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
    return ControlApi(
        lambda *request: asked.append(request),
        lambda reason, _: refused.append(reason),
        Asker("admin"),
        lambda asked, client, reason, text: None,
    )


@pytest.mark.parametrize("role", ["admin", "submitter", "reader", "agent", "executor"])
@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_every_role_at_every_command(
    api: ControlApi, asked: Asked, refused: list[str], role: str, command: Command
) -> None:
    allowed = {
        "admin": True,
        "submitter": not isinstance(command, CreateToken | Leave | DrainNode | RecoverRun | Ban | Audit | Tokens),
        "reader": not isinstance(
            command,
            CreateToken
            | Leave
            | DrainNode
            | RecoverRun
            | Ban
            | Audit
            | Tokens
            | Submit
            | Stop
            | Tap
            | Share
            | Forget
            | SetSecret
            | Secrets
            | Checkpoints
            | ExportCheckpoint
            | RemoveCheckpoint
            | ReadCheckpoint
            | BringCheckpoint
            | Scale
            | Move,
        ),
    }.get(role, False)
    asker = Caller(api, role)
    asker.ask(1, command)
    assert (len(asked) == 1) is allowed
    assert (refused == ["role"]) is not allowed
    assert not asker.got if allowed else isinstance(asker.got[0], Refusal)


@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_a_scope_binds_every_command(api: ControlApi, asked: Asked, refused: list[str], command: Command) -> None:
    """What is about another application, or the network, goes no further; a list is made for the asker, a renewal is its own."""
    caller = Caller(api, "admin", "app:mine")
    caller.ask(1, command)
    allowed = isinstance(command, ListApplications | Secrets | Renew)
    assert (len(asked) == 1) is allowed
    assert refused == ([] if allowed else ["scope"])
    if not allowed:
        (refusal,) = caller.got
        assert isinstance(refusal, Refusal)
        assert "may use app:mine only" in refusal.text


def test_a_submission_whose_name_stands_in_its_specification_goes_on_to_the_node(api: ControlApi, asked: Asked) -> None:
    Caller(api, "submitter", "app:mine").ask(1, Submit("", b"", b""))
    assert len(asked) == 1
    Caller(api, "reader").ask(2, Submit("", b"", b""))
    assert len(asked) == 1


def test_answers_find_their_asker(api: ControlApi, asked: Asked) -> None:
    one, two = Caller(api), Caller(api)
    one.ask(7, Nodes())
    two.ask(7, ListApplications())
    api.progress(asked[1][0], "soon")
    api.answer(asked[0][0], {"a": 1})
    api.refuse(asked[1][0], "no", 2)
    api.answer(asked[1][0], {"late": True})
    assert one.got == [Answer(7, b'{"a":1}')]
    assert two.got == [Progress(7, "soon"), Refusal(7, "no", 2)]


def test_a_client_that_went_away_gets_nothing(api: ControlApi, asked: Asked) -> None:
    asker = Caller(api)
    asker.ask(1, Nodes())
    api.forget(asker.client)
    api.answer(asked[0][0], {})
    assert asker.got == []


def test_open_requests_are_bounded_and_not_doubled(api: ControlApi, asked: Asked) -> None:
    asker = Caller(api)
    asker.ask(1, Nodes())
    asker.ask(1, Nodes())
    assert isinstance(asker.got[0], Refusal)
    for number in range(2, MAX_OPEN_REQUESTS + 5):
        asker.ask(number, Nodes())
    assert len(asked) == MAX_OPEN_REQUESTS


def test_what_is_no_request_closes_the_connection(api: ControlApi) -> None:
    asker = Caller(api)
    with pytest.raises(RemoteProtocolError):
        api.receive(asker.client, CONTROL.encode(Answer(1, b"")))
    with pytest.raises(RemoteProtocolError):
        api.receive(asker.client, b"\xc1")


def test_the_socket_belongs_to_its_owner_and_survives_garbage(tmp_path: Path) -> None:
    seen: list[int] = []
    refused: list[str] = []
    question = frame(FrameKind.CONTROL, CONTROL.encode(Request(3, Info())))

    async def play() -> object:
        def ask(number: int, request: Request, client: Client) -> None:
            seen.append(number)
            control.answer(number, {"who": client.who, "key": client.asker.key.hex()})

        local = Asker("admin", "", b"node")
        control = ControlApi(ask, lambda reason, _: refused.append(reason), local, lambda *_: None)
        path = tmp_path / "c.sock"
        await control.listen(path)
        assert path.stat().st_mode & 0o777 == 0o600
        cookie = tmp_path / "control.cookie"
        assert cookie.stat().st_mode & 0o777 == 0o600
        proof = frame(FrameKind.HELLO, cookie.read_bytes())
        rude = []
        for said in (proof + b"\xff" * 100, question, frame(FrameKind.HELLO, bytes(32)) + question):
            answer, writer = await asyncio.open_unix_connection(path)
            writer.write(said)
            rude.append(await answer.read(1000))
            writer.close()
        assert rude == [b"", b"", b""]
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(proof + question)
        frames = FrameReader(1 << 20)
        frames.feed(await reader.read(1000))
        item = frames.next()
        assert item is not None
        writer.close()
        await control.close()
        assert not path.exists()
        assert not cookie.exists()
        answered = CONTROL.decode(item[1])
        assert isinstance(answered, Answer)
        return json.loads(answered.body)

    assert str(asyncio.run(play())).startswith("{'who': 'uid")
    assert seen == [1]
    assert refused == ["kind", "cookie", "cookie"]


def test_an_answer_that_is_too_large_is_refused_in_words(api: ControlApi, asked: Asked) -> None:
    asker = Caller(api)
    asker.ask(1, Info())
    api.answer(asked[-1][0], {"text": "x" * MAX_FRAME_BYTES})
    (said,) = asker.got
    assert isinstance(said, Refusal)
    assert "more than a frame may have" in said.text


def test_a_state_directory_too_deep_for_a_socket_is_named(api: ControlApi, tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="shorter --state-dir"):
        asyncio.run(api.listen(tmp_path / ("x" * 110) / "control.sock"))


LOOKS_ONLY = (
    ListApplications,
    Status,
    Nodes,
    Route,
    Logs,
    Info,
    Tap,
    Bans,
    Tokens,
    ExplainScaling,
    ExplainRecovery,
    Checkpoints,
    ReadCheckpoint,
    BringCheckpoint,  # who begins something with it signs that
    Audit,
    Secrets,
    Renew,  # its chain of grants says who asks
)


def test_what_changes_something_asks_for_an_order() -> None:
    """Whoever adds a command says in `terms_of` what its order holds, or here that it only looks."""
    assert {type(command) for command in ONE_OF_EACH} == set(get_args(Command)) == set(VERB_BY_COMMAND)
    for command in ONE_OF_EACH:
        terms = terms_of(command)
        assert (terms is None) is isinstance(command, LOOKS_ONLY), command
        assert terms is None or terms.verb == VERB_BY_COMMAND[type(command)]
    checked = terms_of(Submit("x", b"", b"", dry_run=True))
    assert checked is not None
    assert checked.verb == CHECK, "an order to look whether it would run lets nobody run it"
