"""The commands `secret set`, `remove` and `list`: secrets of connectors are sent to the nodes that may open them.

A secret belongs to the key whose command brought it, and only runs submitted by the same key get it. Otherwise a name could be
free
when its secret is set, and the secret would go to the first user to submit something under that name.
"""

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.signed_commands import parse_signed_command
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import NodeContext
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import check
from agiledart_node.records.records import Records
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
from agiledart_node.user_commands.command_forwarding import CommandForwarding
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
    """Provision of secrets, on the asked agent and on the node that stores them."""

    def __init__(self, context: NodeContext, records: Records, verifier: CommandVerifier) -> None:
        self._context, self._records = context, records
        self._forwarding = CommandForwarding(context, verifier, "secret")

    async def provision_secret(self, request: int, command: SetSecret, principal: Principal, signed: bytes) -> None:
        """Have a node store or remove a secret, and answer when it has. Raises CommandRefused."""
        context = self._context
        principal = self._forwarding.requester(command, principal, signed)
        _, record = await self._records.application(command.name)
        check(principal, "secret", command.name, record)
        peer = await self._forwarding.forward(
            command, lambda number: StoreSecret(number, command, signed), SecretStored
        )
        known = SecretInfo(command.secret, command.name, principal.key, _given_at(signed, context.wall_ms))
        context.reply(request, SecretsResponse([_row(peer.name, known)] if command.sealed else [], []))

    async def secrets(self, request: int, command: Secrets, principal: Principal) -> None:
        """Answer with the secrets and their nodes; only an admin sees those of other keys."""
        answers = await ask_all_agents(self._context, lambda number, peer, count: QuerySecrets(number), SecretList)
        names = display_names(tuple(peer for peer, _ in answers))
        rows = [
            _row(names[peer.node], secret)
            for peer, answer in answers
            for secret in (answer.secrets if answer is not None else ())
            if principal.role == "admin" or secret.owner == principal.key
            if command.name in ("", secret.application)
            if principal.scope in ("", f"app:{secret.application}")
        ]
        rows.sort(key=lambda row: (row.application, row.name, row.node))
        self._context.reply(
            request, SecretsResponse(rows, sorted(names[peer.node] for peer, secret in answers if secret is None))
        )

    # ---- on the node that stores secrets

    async def store(self, sender: Peer, message: StoreSecret) -> None:
        """Store or remove a secret that another agent sends; the command is verified here again."""
        command, signed, context = message.command, message.signed_command, self._context

        def work(number: int, principal: Principal) -> KeepSecret:
            known = SecretInfo(command.secret, command.name, principal.key, _given_at(signed, context.wall_ms))
            return KeepSecret(number, known, command.sealed)

        refusal = await self._forwarding.carry_out(command, signed, work, context.config.report_timeout_ns)
        context.send(sender, SecretStored(message.request, refusal))

    async def answer_agent(self, sender: Peer, message: QuerySecrets) -> None:
        """Answer another agent with the secrets stored here."""
        context, number = self._context, self._context.requests.number()
        answer = (await context.ask_driver(number, ReadSecrets(number), context.config.report_timeout_ns)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            secrets = tuple(secret for secret in answer.result if isinstance(secret, SecretInfo))[:MAX_SECRETS_LISTED]
            context.send(sender, SecretList(message.request, secrets, context.known()[:MAX_AGENTS]))


def _given_at(signed_command: bytes, wall_ms: int) -> int:
    try:
        return parse_signed_command(signed_command).wall_ms
    except RemoteProtocolError:  # a world without keys has no signed commands
        return wall_ms


def _row(node: str, secret: SecretInfo) -> SecretRow:
    return SecretRow(secret.name, secret.application, node, secret.owner.hex(), secret.set_ms)
