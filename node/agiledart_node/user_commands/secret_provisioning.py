"""`secret set`, `remove` and `list`: secrets of connectors on their way to the nodes that may open them.

A secret belongs to the key whose order brought it, and only runs that the same key submits get it: a name may be free when its
secret is set, and whoever submitted something under it first would have the secret.
"""

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.signed_commands import parse_signed_command
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import check, check_unseen
from agiledart_node.records.records import Records
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
from agiledart_node.wire.admission_responses import SecretRow, SecretsResponse
from agiledart_node.wire.commands import Secrets, SetSecret
from agiledart_node.wire.secret_messages import (
    MAX_SECRETS_LISTED,
    KeepSecret,
    QuerySecrets,
    ReadSecrets,
    SecretInfo,
    SecretList,
    SecretStored,
    StoreSecret,
)


class SecretProvisioning:
    """The agent that is asked, and the node that keeps."""

    def __init__(self, context: NodeContext, records: Records, verifier: CommandVerifier) -> None:
        self._context, self._records, self._verifier = context, records, verifier

    async def provision_secret(self, request: int, command: SetSecret, principal: Principal, signed: bytes) -> None:
        """Answers when the node keeps it, or has let it go. Raises CommandRefused."""
        context = self._context
        principal, _ = self._verifier.given(signed, command, principal, "")
        check_unseen(principal, "secret", command.name)
        _, record = await self._records.application(command.name)
        check(principal, "secret", command.name, record)
        peer = self._peer(command.node)
        number = context.requests.number()
        message = StoreSecret(number, command, signed)
        timeout = Duration(context.config.ask_timeout_ns)
        answer = await context.requests.ask(peer, message, number, SecretStored, timeout)
        if answer is None or answer.refusal:
            raise CommandRefused(answer.refusal if answer is not None else f"{peer.name} did not answer. Try again.")
        known = SecretInfo(command.secret, command.name, principal.key, _given_at(signed, context.wall_ms))
        context.reply(request, SecretsResponse([_row(peer.name, known)] if command.sealed else [], []))

    def _peer(self, node: str) -> Peer:
        for peer in self._context.known():
            if peer.node.hex == node:
                return peer
        raise CommandRefused(f"{self._context.me.name} knows no node {node[:16]}. Ask the agent of that node itself.")

    async def secrets(self, request: int, command: Secrets, principal: Principal) -> None:
        """Which are kept where; of others' only an admin learns."""
        answers = await ask_all_agents(self._context, lambda number, peer, count: QuerySecrets(number), SecretList)
        shown = display_names(tuple(peer for peer, _ in answers))
        rows = [
            _row(shown[peer.node], one)
            for peer, answer in answers
            for one in (answer.secrets if answer is not None else ())
            if principal.role == "admin" or one.owner == principal.key
            if command.name in ("", one.application)
            if principal.scope in ("", f"app:{one.application}")
        ]
        rows.sort(key=lambda row: (row.application, row.name, row.node))
        self._context.reply(
            request, SecretsResponse(rows, sorted(shown[peer.node] for peer, one in answers if one is None))
        )

    # ---- the node that keeps

    async def store(self, sender: Peer, message: StoreSecret) -> None:
        """Another agent brings one: the order is checked here again."""
        self._context.send(sender, SecretStored(message.request, await self._stored(message)))

    async def _stored(self, message: StoreSecret) -> str:
        context, command = self._context, message.command
        try:
            principal, _ = self._verifier.given(message.signed_command, command, Principal(), "")
            if self._verifier.requires_signatures:
                check_unseen(principal, "secret", command.name)
        except NotAllowed as error:
            context.drop("command: refused")
            return error.text
        if command.node != context.me.node.hex:
            return f"that secret is for another node than {context.me.name}"
        number = context.requests.number()
        known = SecretInfo(
            command.secret, command.name, principal.key, _given_at(message.signed_command, context.wall_ms)
        )
        answers = await context.ask_driver(
            number, KeepSecret(number, known, command.sealed), context.config.report_timeout_ns
        )
        answer = answers.get(number)
        if isinstance(answer, Completed):
            return ""
        return getattr(answer, "reason", "") or f"{context.me.name} could not keep it"

    async def answer_agent(self, sender: Peer, message: QuerySecrets) -> None:
        """Another agent wants to know what is kept here."""
        context, number = self._context, self._context.requests.number()
        answer = (await context.ask_driver(number, ReadSecrets(number), context.config.report_timeout_ns)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            secrets = tuple(one for one in answer.result if isinstance(one, SecretInfo))[:MAX_SECRETS_LISTED]
            context.send(sender, SecretList(message.request, secrets, context.known()[:MAX_AGENTS]))


def _given_at(signed_command: bytes, wall_ms: int) -> int:
    try:
        return parse_signed_command(signed_command).wall_ms
    except RemoteProtocolError:  # nothing is signed in this world
        return wall_ms


def _row(node: str, one: SecretInfo) -> SecretRow:
    return SecretRow(one.name, one.application, node, one.owner.hex(), one.set_ms)
