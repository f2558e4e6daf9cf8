"""Requests are numbered, roles checked, answers sent to the requester only."""

import asyncio
import json
from pathlib import Path
from typing import get_args

import pytest

from agiledart_agent.control.control_api import CONTROL, MAX_OPEN_REQUESTS, ControlApi, ControlPeer
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import FrameKind, FrameReader, frame
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_kernel.permissions import Principal
from agiledart_node.records.command_verifier import CHECK, command_terms
from agiledart_node.wire.checkpoint_commands import Checkpoints, ExportCheckpoint, RecoverRun, RemoveCheckpoint
from agiledart_node.wire.commands import (
    VERB_BY_COMMAND,
    Audit,
    Command,
    CreateFeed,
    CreateToken,
    DrainNode,
    ExplainPlacement,
    ExplainRecovery,
    ExplainScaling,
    Feeds,
    Forget,
    Info,
    ListApplications,
    ListBans,
    Logs,
    MoveStage,
    Nodes,
    RemoveFeed,
    RenewUserMembership,
    ScaleStage,
    Secrets,
    SetBan,
    SetSecret,
    ShareApplication,
    ShareModel,
    ShutDownAgent,
    Status,
    Stop,
    Submit,
    Tap,
    Tokens,
    TraceRoute,
)
from agiledart_node.wire.control_messages import (
    ControlAnswer,
    ControlMessage,
    ControlProgress,
    ControlRefusal,
    ControlRequest,
)
from agiledart_node.wire.lease_messages import NoteLease, OrderGate, RenewHostLease, ReportGate, ShowProvisioning
from agiledart_node.wire.transfer_commands import ReadCheckpoint, UploadCheckpoint, UploadModel

ONE_OF_EACH: tuple[Command, ...] = (
    Submit("x", b"", b""), ListApplications(), Status("x"), Stop("x"), Nodes(), TraceRoute("0"), Logs("x"), Info(),
    CreateToken(), ShutDownAgent(), Tap("x", "y"), ShareApplication("x", "00"), SetBan("ab" * 32, 0), ListBans(),
    Tokens(), Forget("x"), ExplainScaling("x"), ExplainPlacement("x"),
    Audit(), SetSecret("x", "00", "y"), Secrets(),
    ExplainRecovery("x"), Checkpoints("x"), ExportCheckpoint("x"), RemoveCheckpoint("x"), ReadCheckpoint("x", "0" * 64, 0),
    UploadCheckpoint("x", "0" * 64, 1, 0, b""), UploadModel("x", "0" * 64, 1, 0, b""), ShareModel("x", "0" * 64, 1),
    ScaleStage("x", "y", 2), MoveStage("x", "y", "a1"),
    RenewUserMembership(), DrainNode("a1"),
    RecoverRun("x", ("a1",)), CreateFeed("x", "00"), RemoveFeed("x", "00"), Feeds(),
    RenewHostLease("00", "x", "x", b""), NoteLease("x", "lease", "x", ""), ReportGate("x", "", b""), OrderGate("pause"),
    ShowProvisioning(),
)  # fmt: skip


OfGates = RenewHostLease | NoteLease | ReportGate | OrderGate

Asked = list[tuple[int, ControlRequest, ControlPeer]]
"""Requests that went on: number, command, who."""


class Caller:
    """A client and what it got."""

    def __init__(self, api: ControlApi, role: str = "admin", scope: str = "") -> None:
        self.api, self.got = api, list[ControlMessage]()
        self.client = ControlPeer(
            Principal(role, scope, b"k" * 32), role, lambda _, body: self.got.append(CONTROL.decode(body))
        )

    def ask(self, number: int, command: Command) -> None:
        self.api.receive(self.client, CONTROL.encode(ControlRequest(number, command)))


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
        Principal("admin"),
        lambda asked, client, reason, text: None,
    )


@pytest.mark.parametrize("role", ["admin", "submitter", "reader", "agent", "executor"])
@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_every_command_is_checked_against_every_role(
    api: ControlApi, asked: Asked, refused: list[str], role: str, command: Command
) -> None:
    allowed = {
        "admin": True,
        "submitter": not isinstance(
            command,
            CreateToken | ShutDownAgent | DrainNode | RecoverRun | SetBan | Audit | Tokens | OfGates,
        ),
        "reader": not isinstance(
            command,
            CreateToken
            | ShutDownAgent
            | DrainNode
            | RecoverRun
            | SetBan
            | Audit
            | Tokens
            | Submit
            | Stop
            | Tap
            | ShareApplication
            | Forget
            | SetSecret
            | CreateFeed
            | RemoveFeed
            | Secrets
            | Checkpoints
            | ExportCheckpoint
            | RemoveCheckpoint
            | ReadCheckpoint
            | UploadCheckpoint
            | UploadModel
            | ShareModel
            | ScaleStage
            | MoveStage
            | OfGates,
        ),
        "agent": isinstance(
            command,
            ListApplications
            | Status
            | Nodes
            | TraceRoute
            | Info
            | ListBans
            | RenewUserMembership
            | DrainNode
            | ShutDownAgent
            | ShowProvisioning,
        ),
    }.get(role, False)
    principal = Caller(api, role)
    principal.ask(1, command)
    assert (len(asked) == 1) is allowed
    assert (refused == ["role"]) is not allowed
    assert not principal.got if allowed else isinstance(principal.got[0], ControlRefusal)


@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_a_scope_restricts_every_command(api: ControlApi, asked: Asked, refused: list[str], command: Command) -> None:
    """Entries about another application, or the network, are hidden; a list is made for the asker, a renewal is its own."""
    caller = Caller(api, "admin", "app:mine")
    caller.ask(1, command)
    allowed = isinstance(command, ListApplications | Secrets | RenewUserMembership)
    assert (len(asked) == 1) is allowed
    assert refused == ([] if allowed else ["scope"])
    if not allowed:
        (refusal,) = caller.got
        assert isinstance(refusal, ControlRefusal)
        assert "may use app:mine only" in refusal.text


def test_a_submission_named_by_its_specification_reaches_the_node(api: ControlApi, asked: Asked) -> None:
    Caller(api, "submitter", "app:mine").ask(1, Submit("", b"", b""))
    assert len(asked) == 1
    Caller(api, "reader").ask(2, Submit("", b"", b""))
    assert len(asked) == 1


def test_answers_reach_their_requester(api: ControlApi, asked: Asked) -> None:
    one, two = Caller(api), Caller(api)
    one.ask(7, Nodes())
    two.ask(7, ListApplications())
    api.progress(asked[1][0], "soon")
    api.answer(asked[0][0], {"a": 1})
    api.refuse(asked[1][0], "no", 2)
    api.answer(asked[1][0], {"late": True})
    assert one.got == [ControlAnswer(7, b'{"a":1}')]
    assert two.got == [ControlProgress(7, "soon"), ControlRefusal(7, "no", 2)]


def test_a_disconnected_client_gets_nothing(api: ControlApi, asked: Asked) -> None:
    principal = Caller(api)
    principal.ask(1, Nodes())
    api.forget(principal.client)
    api.answer(asked[0][0], {})
    assert principal.got == []


def test_pending_requests_are_bounded_and_not_duplicated(api: ControlApi, asked: Asked) -> None:
    principal = Caller(api)
    principal.ask(1, Nodes())
    principal.ask(1, Nodes())
    assert isinstance(principal.got[0], ControlRefusal)
    for number in range(2, MAX_OPEN_REQUESTS + 5):
        principal.ask(number, Nodes())
    assert len(asked) == MAX_OPEN_REQUESTS


def test_an_invalid_request_closes_the_connection(api: ControlApi) -> None:
    principal = Caller(api)
    with pytest.raises(RemoteProtocolError):
        api.receive(principal.client, CONTROL.encode(ControlAnswer(1, b"")))
    with pytest.raises(RemoteProtocolError):
        api.receive(principal.client, b"\xc1")


def test_the_socket_belongs_to_its_owner_and_survives_garbage(tmp_path: Path) -> None:
    seen: list[int] = []
    refused: list[str] = []
    question = frame(FrameKind.CONTROL, CONTROL.encode(ControlRequest(3, Info())))

    async def play() -> object:
        def ask(number: int, request: ControlRequest, client: ControlPeer) -> None:
            seen.append(number)
            control.answer(number, {"who": client.requester, "key": client.principal.key.hex()})

        local = Principal("admin", "", b"node")
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
        assert isinstance(answered, ControlAnswer)
        return json.loads(answered.body)

    assert str(asyncio.run(play())).startswith("{'who': 'uid")
    assert seen == [1]
    assert refused == ["kind", "cookie", "cookie"]


def test_an_oversized_answer_is_refused_in_words(api: ControlApi, asked: Asked) -> None:
    principal = Caller(api)
    principal.ask(1, Info())
    api.answer(asked[-1][0], {"text": "x" * MAX_FRAME_BYTES})
    (said,) = principal.got
    assert isinstance(said, ControlRefusal)
    assert "more than fit into a frame" in said.text


def test_a_state_directory_too_deep_for_a_socket_is_named(api: ControlApi, tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="shorter --state-dir"):
        asyncio.run(api.listen(tmp_path / ("x" * 110) / "control.sock"))


LOOKS_ONLY = (
    Feeds,
    ListApplications,
    Status,
    Nodes,
    TraceRoute,
    Logs,
    Info,
    ListBans,
    Tokens,
    ExplainScaling,
    ExplainPlacement,
    ExplainRecovery,
    Checkpoints,
    ReadCheckpoint,
    UploadModel,  # what follows it is signed
    UploadCheckpoint,  # the user that begins a change with it signs that
    Audit,
    Secrets,
    ShowProvisioning,
    ReportGate,  # the agent beside the gate keeps it, and no other node takes it for an order
    RenewUserMembership,  # its chain of grants identifies the requester
)


def test_a_changing_request_needs_a_signed_command() -> None:
    """A new command needs its terms in `command_terms`, or an entry here that it only reads."""
    assert {type(command) for command in ONE_OF_EACH} == set(get_args(Command)) == set(VERB_BY_COMMAND)
    for command in ONE_OF_EACH:
        terms = command_terms(command)
        assert (terms is None) is isinstance(command, LOOKS_ONLY), command
        assert terms is None or terms.verb == VERB_BY_COMMAND[type(command)]
    checked = command_terms(Submit("x", b"", b"", dry_run=True))
    assert checked is not None
    assert checked.verb == CHECK, "a dry-run command authorises no run"


def test_an_ending_agent_refuses_open_requests_and_ends_connections(tmp_path: Path) -> None:
    problems: list[object] = []

    async def play() -> bytes:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        asked = asyncio.Event()
        local = Principal("admin", "", b"node")
        control = ControlApi(lambda *_: asked.set(), lambda *_: None, local, lambda *_: None)
        await control.listen(tmp_path / "control.sock")
        reader, writer = await asyncio.open_unix_connection(tmp_path / "control.sock")
        cookie = (tmp_path / "control.cookie").read_bytes()
        writer.write(
            frame(FrameKind.HELLO, cookie) + frame(FrameKind.CONTROL, CONTROL.encode(ControlRequest(7, Info())))
        )
        await writer.drain()
        await asked.wait()
        await control.close()
        answer = await reader.read()
        writer.close()
        return answer

    frames = FrameReader(MAX_FRAME_BYTES)
    frames.feed(asyncio.run(play()))
    item = frames.next()
    assert item is not None
    refusal = CONTROL.decode(item[1])
    assert isinstance(refusal, ControlRefusal)
    assert (refusal.request, "This agent ends now" in refusal.text) == (7, True)
    assert problems == []
