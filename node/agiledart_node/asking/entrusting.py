"""`secret set`, `remove` and `list`: secrets of connectors on their way to the nodes that may open them.

A secret belongs to the key whose order brought it, and only runs that the same key submits get it: a name may be free when its
secret is set, and whoever submitted something under it first would have the secret.
"""

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed
from agiledart_kernel.orders import read_order
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Asker
from agiledart_node.asking.everybody import MAX_AGENTS, ask_everybody
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed
from agiledart_node.desk.names import display_names
from agiledart_node.records.allowing import check, check_unseen
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.wire.admission_bodies import SecretRow, SecretsBody
from agiledart_node.wire.commands import Secrets, SetSecret
from agiledart_node.wire.secret_messages import (
    MAX_TOLD,
    AskSecrets,
    KeepSecret,
    KnownSecret,
    ReadSecrets,
    SecretsAre,
    SecretStored,
    StoreSecret,
)


class Entrusting:
    """The agent that is asked, and the node that keeps."""

    def __init__(self, desk: Desk, records: Records, orders: Orders) -> None:
        self._desk, self._records, self._orders = desk, records, orders

    async def entrust(self, request: int, command: SetSecret, asker: Asker, signed: bytes) -> None:
        """Answers when the node keeps it, or has let it go. Raises CommandRefused."""
        desk = self._desk
        asker, _ = self._orders.given(signed, command, asker, "")
        check_unseen(asker, "secret", command.name)
        _, record = await self._records.application(command.name)
        check(asker, "secret", command.name, record)
        peer = self._peer(command.node)
        number = desk.talks.number()
        message = StoreSecret(number, command, signed)
        timeout = Duration(desk.config.ask_timeout_ns)
        answer = await desk.talks.ask(peer, message, number, SecretStored, timeout)
        if answer is None or answer.refusal:
            raise CommandRefused(answer.refusal if answer is not None else f"{peer.name} did not answer. Try again.")
        known = KnownSecret(command.secret, command.name, asker.key, _given_at(signed, desk.wall_ms))
        desk.reply(request, SecretsBody([_row(peer.name, known)] if command.sealed else [], []))

    def _peer(self, node: str) -> Peer:
        for peer in self._desk.known():
            if peer.node.hex == node:
                return peer
        raise CommandRefused(f"{self._desk.me.name} knows no node {node[:16]}. Ask the agent of that node itself.")

    async def secrets(self, request: int, command: Secrets, asker: Asker) -> None:
        """Which are kept where; of others' only an admin learns."""
        answers = await ask_everybody(self._desk, lambda number, peer, count: AskSecrets(number), SecretsAre)
        shown = display_names(tuple(peer for peer, _ in answers))
        rows = [
            _row(shown[peer.node], one)
            for peer, answer in answers
            for one in (answer.secrets if answer is not None else ())
            if asker.role == "admin" or one.owner == asker.key
            if command.name in ("", one.application)
            if asker.scope in ("", f"app:{one.application}")
        ]
        rows.sort(key=lambda row: (row.application, row.name, row.node))
        self._desk.reply(request, SecretsBody(rows, sorted(shown[peer.node] for peer, one in answers if one is None)))

    # ---- the node that keeps

    async def store(self, sender: Peer, message: StoreSecret) -> None:
        """Another agent brings one: the order is checked here again."""
        self._desk.send(sender, SecretStored(message.request, await self._stored(message)))

    async def _stored(self, message: StoreSecret) -> str:
        desk, command = self._desk, message.command
        try:
            asker, _ = self._orders.given(message.order, command, Asker(), "")
            if self._orders.are_signed:
                check_unseen(asker, "secret", command.name)
        except NotAllowed as error:
            desk.drop("order: refused")
            return error.text
        if command.node != desk.me.node.hex:
            return f"that secret is for another node than {desk.me.name}"
        number = desk.talks.number()
        known = KnownSecret(command.secret, command.name, asker.key, _given_at(message.order, desk.wall_ms))
        answers = await desk.driven(number, KeepSecret(number, known, command.sealed), desk.config.report_timeout_ns)
        answer = answers.get(number)
        if isinstance(answer, Completed):
            return ""
        return getattr(answer, "reason", "") or f"{desk.me.name} could not keep it"

    async def local(self, sender: Peer, message: AskSecrets) -> None:
        """Another agent wants to know what is kept here."""
        desk, number = self._desk, self._desk.talks.number()
        answer = (await desk.driven(number, ReadSecrets(number), desk.config.report_timeout_ns)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            secrets = tuple(one for one in answer.result if isinstance(one, KnownSecret))[:MAX_TOLD]
            desk.send(sender, SecretsAre(message.request, secrets, desk.known()[:MAX_AGENTS]))


def _given_at(order: bytes, wall_ms: int) -> int:
    try:
        return read_order(order).wall_ms
    except RemoteProtocolError:  # nothing is signed in this world
        return wall_ms


def _row(node: str, one: KnownSecret) -> SecretRow:
    return SecretRow(one.name, one.application, node, one.owner.hex(), one.set_ms)
