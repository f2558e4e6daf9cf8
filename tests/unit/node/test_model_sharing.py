"""`agiledart model`: the nodes of an application fetch in waves, and each refusal reaches the user."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.machine import Completed, Failed, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import CommandRefused, NotAllowed
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.user_commands.command_service import CommandParts
from agiledart_node.user_commands.model_sharing import JOINING_NS, ModelSharing
from agiledart_node.wire.commands import ShareModel
from agiledart_node.wire.model_messages import FetchModel, ModelPlaced, ModelResponse, PlaceModel
from agiledart_node.wire.shared_model import SharedModel
from agiledart_recovery.recovery_config import RecoveryConfig

ASKED = Peer(NodeId(100), 1, "asked")
HOSTS = tuple(Peer(NodeId(number), 1, f"a{number}") for number in range(1, 8))
COMMAND = ShareModel("rooms", "ab" * 32, 5_000)
OWNER = Principal("submitter", "", b"m" * 32)


class Sharing:
    """The asked agent among nodes that all fetch, but for those in `refusals`."""

    def __init__(self, state: str = "running", refusals: dict[NodeId, str | None] | None = None) -> None:
        self.refusals = refusals or {}
        self.waves: list[dict[str, list[str]]] = []
        self.replies: list[Any] = []
        record = ApplicationRecord("rooms", 1, 7, 7, state, ASKED, owner_key=OWNER.key)
        self.record: Any = SimpleNamespace(
            name="rooms", state=state, hosts=lambda: HOSTS, names=lambda: {peer.node: peer.name for peer in HOSTS}
        )
        self.stored = record
        self.numbers = iter(range(1, 1_000))
        context: Any = SimpleNamespace(
            me=ASKED,
            requests=SimpleNamespace(number=lambda: next(self.numbers), answers=self.answers),
            emit=lambda effect: None,
            reply=lambda request, body: self.replies.append(body),
        )
        watching: Any = SimpleNamespace(refresher=SimpleNamespace(refreshed=self.refreshed))
        verifier: Any = SimpleNamespace(identify_requester=lambda *_: (OWNER, "ann"))
        queries: Any = SimpleNamespace(record=self.found)
        self.sharing = ModelSharing(CommandParts(context, cast("Any", None), queries, watching, verifier))

    async def found(self, name: str, principal: Principal, verb: str) -> Any:
        assert (name, principal, verb) == ("rooms", OWNER, "model")
        return self.record

    async def refreshed(self, record: Any) -> Any:
        return record

    async def answers(self, questions: dict[int, Any], timeout: int) -> dict[int, ModelPlaced | None]:
        self.waves.append(
            {question.to.name: [peer.name for peer in question.message.copy_nodes] for question in questions.values()}
        )
        return {
            number: None if (why := self.refusals.get(question.to.node, "")) is None else ModelPlaced(number, why)
            for number, question in questions.items()
        }

    def share(self) -> ModelResponse:
        asyncio.run(self.sharing.share(1, COMMAND, Principal(), b"signed"))
        (reply,) = self.replies
        assert isinstance(reply, ModelResponse)
        return reply


def test_each_wave_fetches_from_the_nodes_of_the_waves_before() -> None:
    sharing = Sharing()
    reply = sharing.share()
    assert [list(wave) for wave in sharing.waves] == [["a1"], ["a2", "a3"], ["a4", "a5", "a6", "a7"]]
    assert sharing.waves[0] == {"a1": ["asked"]}
    assert sharing.waves[1] == {"a2": ["asked", "a1"], "a3": ["a1", "asked"]}
    assert [copy_nodes[0] for copy_nodes in sharing.waves[2].values()] == ["asked", "a1", "a2", "a3"]
    assert reply == ModelResponse("rooms", "sha256:" + "ab" * 32, "ab" * 6, 5_000, [peer.name for peer in HOSTS])


def test_a_node_without_the_file_is_named_and_asked_for_none() -> None:
    sharing = Sharing(refusals={HOSTS[0].node: "the disk has 5 free bytes", HOSTS[3].node: None})
    with pytest.raises(CommandRefused) as refusal:
        sharing.share()
    assert refusal.value.text == (
        "The model is not on all nodes of rooms (a1: the disk has 5 free bytes; a4: no answer)."
        " Send it again before you name it."
    )
    assert all(
        "a1" not in copy_nodes and "a4" not in copy_nodes for wave in sharing.waves for copy_nodes in wave.values()
    )


@pytest.mark.parametrize("state", ["finished", "failed", "stopped"])
def test_an_application_that_does_not_run_gets_no_model(state: str) -> None:
    with pytest.raises(
        CommandRefused, match=f"rooms is {state}: a model is sent to the nodes of a running application"
    ):
        Sharing(state).share()


@pytest.mark.parametrize(
    ("principal", "outcome", "refusal", "fetches"),
    [
        (OWNER, Completed(1), "", True),
        (OWNER, Failed(1, "no node gave the model"), "no node gave the model", True),
        (OWNER, None, "the file did not come in time", True),
        (Principal("submitter", "", b"o" * 32), Completed(1), "belongs to the key", False),
        (Principal("reader"), Completed(1), "may not model", False),
    ],
)
def test_a_node_verifies_the_users_command_again(
    principal: Principal, outcome: Completed | Failed | None, refusal: str, fetches: bool
) -> None:
    effects: list[Any] = []
    sent: list[Any] = []
    record = ApplicationRecord("rooms", 1, 7, 7, "running", ASKED, owner_key=OWNER.key)

    async def ask_driver(number: int, effect: Any, timeout: int) -> dict[int, Any]:
        effects.append(effect)
        return {} if outcome is None else {number: outcome}

    async def application(name: str) -> tuple[int, ApplicationRecord]:
        return 1, record

    context: Any = SimpleNamespace(
        requests=SimpleNamespace(number=lambda: 1),
        ask_driver=ask_driver,
        send=lambda to, message: sent.append(message),
        drop=lambda reason: None,
    )
    verifier: Any = SimpleNamespace(requires_signatures=True, identify_requester=lambda *_: (principal, "ann"))
    records: Any = SimpleNamespace(application=application)
    nothing = cast("Any", None)
    sharing = ModelSharing(CommandParts(context, records, nothing, nothing, verifier))
    asyncio.run(sharing.placed(ASKED, PlaceModel(9, COMMAND, (ASKED,), b"signed")))
    assert effects == ([FetchModel(1, "rooms", b"\xab" * 32, 5_000, (ASKED,))] if fetches else [])
    assert sent[0].request == 9
    assert refusal in sent[0].refusal
    assert bool(sent[0].refusal) is bool(refusal)


def test_a_node_names_a_ring_that_does_not_answer() -> None:
    sent: list[Any] = []

    async def application(name: str) -> tuple[int, ApplicationRecord]:
        raise CommandRefused(f"The record of {name} cannot be read: the ring did not answer (timeout).")

    context: Any = SimpleNamespace(send=lambda to, message: sent.append(message))
    verifier: Any = SimpleNamespace(requires_signatures=True, identify_requester=lambda *_: (OWNER, "ann"))
    nothing = cast("Any", None)
    sharing = ModelSharing(
        CommandParts(context, cast("Any", SimpleNamespace(application=application)), nothing, nothing, verifier)
    )
    asyncio.run(sharing.placed(ASKED, PlaceModel(9, COMMAND, (ASKED,), b"signed")))
    assert sent == [ModelPlaced(9, "The record of rooms cannot be read: the ring did not answer (timeout).")]


def test_a_node_that_is_new_to_the_application_fetches_its_models() -> None:
    """Only those that have come are passed on to the next new node; a missing one holds nothing up."""
    emitted: list[Any] = []

    async def answers(questions: dict[int, Any], timeout: int) -> dict[int, Any]:
        first, second, _ = questions
        return {first: Completed(first), second: Failed(second, "no node gave the model")}

    numbers = iter(range(1, 100))
    requests = SimpleNamespace(number=lambda: next(numbers), answers=answers, is_full=True)
    context: Any = SimpleNamespace(requests=requests, emit=emitted.append)
    nothing = cast("Any", None)
    sharing = ModelSharing(CommandParts(context, nothing, nothing, nothing, nothing))
    models = tuple(SharedModel(bytes([number]) * 32, 100) for number in range(3))
    asyncio.run(sharing.fetch_models("rooms", models, HOSTS[0]))
    assert emitted == [
        FetchModel(number + 1, "rooms", model.digest, 100, (HOSTS[0],)) for number, model in enumerate(models)
    ]
    assert sharing.models_of("rooms") == models[:1]
    assert sharing.models_of("halls") == ()


def test_a_model_that_comes_late_is_passed_on_to_later_nodes() -> None:
    requests = PendingRequests(RandomStream(1), Duration(SECOND), 8)
    context: Any = SimpleNamespace(requests=requests, emit=requests.effects.append)
    nothing, entered = cast("Any", None), list[str]()
    sharing = ModelSharing(CommandParts(context, nothing, nothing, nothing, nothing))
    models = (SharedModel(b"a" * 32, 100), SharedModel(b"b" * 32, 100))

    async def enter() -> None:
        await sharing.fetch_models("rooms", models, HOSTS[0])
        entered.append("rooms")

    requests.begin(enter())
    first, second, timer = requests.effects
    assert isinstance(first, FetchModel)
    assert isinstance(second, FetchModel)
    assert isinstance(timer, SetTimer)
    requests.resolve(first.request, Completed(first.request))
    requests.now = timer.at
    requests.timer(cast("Any", timer.name))
    assert (entered, sharing.models_of("rooms")) == (["rooms"], models[:1])
    requests.resolve(second.request, Completed(second.request))
    assert sharing.models_of("rooms") == models
    assert requests.count == 0


def test_a_new_node_waits_less_for_models_than_its_coordinator_waits_for_it() -> None:
    assert RecoveryConfig().reset_timeout_ns > JOINING_NS


def test_a_command_that_is_not_signed_fetches_nothing() -> None:
    def refuse(*_: object) -> None:
        raise NotAllowed("command", "That command is not signed.")

    sent: list[Any] = []
    context: Any = SimpleNamespace(send=lambda to, message: sent.append(message), drop=lambda reason: None)
    nothing, verifier = cast("Any", None), cast("Any", SimpleNamespace(identify_requester=refuse))
    sharing = ModelSharing(CommandParts(context, nothing, nothing, nothing, verifier))
    try:
        asyncio.run(sharing.placed(ASKED, PlaceModel(9, COMMAND, (ASKED,))))
    except OperationFailed:  # pragma: no cover  it would leave the sender without an answer
        pytest.fail("the sender gets no answer")
    assert sent[0].refusal == "That command is not signed."
