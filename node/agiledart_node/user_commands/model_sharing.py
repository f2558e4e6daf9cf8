"""The command `model`: the nodes of a running application fetch a model's file from each other.

The asked agent has the file. It asks one node, then two, then four: each wave fetches from the nodes that have the file
by then, so no uplink carries it more often than a few times. Each node verifies the signed command again.
"""

from typing import Final

from agiledart_dataflow.plan.model_names import REFERENCE, VERSION_DIGITS
from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NotAllowed
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.records.application import DEPLOYING, RUNNING
from agiledart_node.records.permission_checks import check
from agiledart_node.user_commands.command_service import CommandParts, CommandService
from agiledart_node.wire.commands import ShareModel
from agiledart_node.wire.effects import Progressed
from agiledart_node.wire.model_messages import MAX_COPY_NODES, FetchModel, ModelPlaced, ModelResponse, PlaceModel
from agiledart_node.wire.shared_model import MAX_SHARED_MODELS, SharedModel

FETCH_NS: Final = 300 * SECOND
"""Timeout for one node to fetch a file: the largest one over 2 Mbit/s."""

JOINING_NS: Final = Duration(8 * SECOND)
"""Longest time for which the start on a new node waits for models: less than its coordinator waits for news of it
(`RecoveryConfig.reset_timeout_ns`)."""

MAX_APPLICATIONS: Final = 256
"""Applications of which this node remembers models."""

RESEND_INTERVALS: Final = 20


class ModelSharing(CommandService):
    """Distribution of models' files, on the asked agent and on the nodes of the application."""

    def __init__(self, parts: CommandParts) -> None:
        super().__init__(parts)
        self._shared: dict[str, dict[bytes, SharedModel]] = {}  # by application, in the order of their arrival

    def models_of(self, application: str) -> tuple[SharedModel, ...]:
        """Return the newest models of an application that this node has fetched since its start."""
        return tuple(self._shared.get(application, {}).values())

    async def fetch_models(self, application: str, models: tuple[SharedModel, ...], peer: Peer) -> None:
        """Fetch the models of another host, on a node that is new to the application.

        The application does not wait for a model that comes late: until then rows that name it are refused.
        """
        requests = {self._context.requests.number(): model for model in models}
        for number, model in requests.items():
            self._context.emit(FetchModel(number, application, model.digest, model.size, (peer,)))
        if not requests:
            return
        late = await self._note_fetched(application, requests, JOINING_NS)
        if late and not self._context.requests.is_full:
            self._context.requests.begin(self._note_late(application, late))

    async def _note_late(self, application: str, requests: dict[int, SharedModel]) -> None:
        await self._note_fetched(application, requests, Duration(FETCH_NS))

    async def _note_fetched(
        self, application: str, requests: dict[int, SharedModel], timeout: Duration
    ) -> dict[int, SharedModel]:
        """Note the models that come within a time. Return the requests without an answer."""
        answers = await self._context.requests.answers(dict.fromkeys(requests), timeout)
        for number, model in requests.items():
            if isinstance(answers.get(number), Completed):
                self._note(application, model)
        return {number: model for number, model in requests.items() if number not in answers}

    def _note(self, application: str, model: SharedModel) -> None:
        known = self._shared.setdefault(application, {})
        known.pop(model.digest, None)
        known[model.digest] = model
        while len(known) > MAX_SHARED_MODELS:
            del known[next(iter(known))]
        while len(self._shared) > MAX_APPLICATIONS:
            del self._shared[next(iter(self._shared))]

    async def share(self, request: int, command: ShareModel, principal: Principal, signed: bytes) -> None:
        """Have all hosts of an application fetch the file, and answer when all have it. Raises CommandRefused."""
        principal, _ = self._verifier.identify_requester(signed, command, principal, "")
        record = await self._status_queries.record(command.name, principal, "model")
        record = await self._watching.refresher.refreshed(record)
        if record.state not in (DEPLOYING, RUNNING) or not record.hosts():
            raise CommandRefused(
                f"{record.name} is {record.state}: a model is sent to the nodes of a running application."
            )
        copy_nodes, waiting, faults = [self._context.me], list(record.hosts()), dict[NodeId, str]()
        while waiting:
            wave, waiting = waiting[: len(copy_nodes)], waiting[len(copy_nodes) :]
            refusals = await self._ask(wave, command, signed, copy_nodes)
            faults.update({node: why for node, why in refusals.items() if why})
            copy_nodes += [peer for peer in wave if not refusals[peer.node] and peer.node != self._context.me.node]
            self._context.emit(
                Progressed(request, f"{len(record.hosts()) - len(waiting)} of {len(record.hosts())} nodes")
            )
        names = record.names()
        if faults:
            texts = "; ".join(f"{names.get(node, node.short)}: {why}" for node, why in faults.items())
            raise CommandRefused(
                f"The model is not on all nodes of {record.name} ({texts}). Send it again before you name it."
            )
        nodes = [names.get(peer.node, peer.name) for peer in record.hosts()]
        reference, version = f"{REFERENCE.decode()}{command.digest}", command.digest[:VERSION_DIGITS]
        self._context.reply(request, ModelResponse(record.name, reference, version, command.size, nodes))

    async def _ask(
        self, wave: list[Peer], command: ShareModel, signed: bytes, copy_nodes: list[Peer]
    ) -> dict[NodeId, str]:
        """Return for each node of a wave why it does not have the file; empty: it has."""
        questions: dict[int, PeerRequest | None] = {}
        asked: dict[int, Peer] = {}
        for place, peer in enumerate(wave):
            nearest = copy_nodes[place:] + copy_nodes[:place]  # each node of a wave begins with another one
            message = PlaceModel(self._context.requests.number(), command, tuple(nearest[:MAX_COPY_NODES]), signed)
            asked[message.request] = peer
            questions[message.request] = PeerRequest(peer, message, ModelPlaced, RESEND_INTERVALS)
        answers = await self._context.requests.answers(questions, Duration(FETCH_NS))
        return {
            peer.node: answer.refusal if isinstance(answer := answers.get(number), ModelPlaced) else "no answer"
            for number, peer in asked.items()
        }

    async def placed(self, sender: Peer, message: PlaceModel) -> None:
        """Fetch a file for a user's command that another agent forwards; the command is verified here again."""
        context, command = self._context, message.command
        try:
            principal, _ = self._verifier.identify_requester(message.signed_command, command, Principal(), "")
            if self._verifier.requires_signatures:
                _, record = await self._records.application(command.name)
                check(principal, "model", command.name, record)
            refusal = await self._fetched(message)
        except NotAllowed as error:
            context.drop(f"command: {error.reason}")
            refusal = error.text
        except CommandRefused as error:  # the ring did not give the application's record
            refusal = error.text
        context.send(sender, ModelPlaced(message.request, refusal))

    async def _fetched(self, message: PlaceModel) -> str:
        """Return why the file could not be fetched; empty: it is here."""
        number, command = self._context.requests.number(), message.command
        effect = FetchModel(number, command.name, bytes.fromhex(command.digest), command.size, message.copy_nodes)
        answer = (await self._context.ask_driver(number, effect, FETCH_NS)).get(number)
        if isinstance(answer, Completed):
            self._note(command.name, SharedModel(effect.digest, command.size))
            return ""
        return answer.reason if isinstance(answer, Failed) else "the file did not come in time"
