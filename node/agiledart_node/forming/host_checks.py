"""Checks of hosts for a dry run: whether the code loads, and whether sources and sinks would open. Nothing keeps running."""

from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.forming.blueprint import Blueprint
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.wire.effects import CheckCode
from agiledart_node.wire.formation_messages import CheckHost, HostChecked
from agiledart_node.wire.submission_responses import CheckRow
from agiledart_placement.problem.request import Placement

CHECK = Duration(10 * SECOND)
"""Time limit for all hosts together; a host's own process has a little less."""

MAX_CHECKS = 4
"""Checks at one time on one node; each is a process."""


class HostChecks:
    """Asks hosts, and answers as host."""

    def __init__(self, context: NodeContext, verifier: CommandVerifier) -> None:
        self._context, self._verifier = context, verifier
        self._asked: dict[tuple[NodeId, int], None] = {}

    async def checked(
        self,
        blueprint: Blueprint,
        bundle: bytes,
        signed_command: bytes,
        placement: Placement,
        peers: dict[NodeId, Peer],
        names: dict[NodeId, str],
    ) -> list[CheckRow]:
        """Return one row for each source and sink, and one for each host on which the code does not load."""
        stages: dict[NodeId, dict[int, bool]] = {}
        for (stage, _), node in placement.nodes.items():
            stages.setdefault(node, {})[stage] = True
        answers = await self._context.requests.ask_all(
            [peers[node] for node in sorted(stages)],
            lambda number, peer: CheckHost(number, blueprint.plan, bundle, tuple(stages[peer.node]), signed_command),
            HostChecked,
            CHECK,
        )
        rows = []
        for peer, answer in answers:
            host = names.get(peer.node, peer.name)
            if answer is None:
                rows.append(CheckRow("", host, "", False, f"{host} did not answer within {CHECK // SECOND} s"))
            elif answer.refusal:
                rows.append(CheckRow("", host, "", False, answer.refusal))
            else:
                rows += [
                    CheckRow(
                        blueprint.stages[connector.stage].name,
                        host,
                        connector.url,
                        connector.is_good,
                        connector.text,
                        connector.guarantee,
                    )
                    for connector in answer.connectors
                    if connector.stage in stages[peer.node]
                ]
        # Order of the stages; rows without a stage (a host without code) come first.
        places = {stage.name: number for number, stage in enumerate(blueprint.stages)}
        return sorted(rows, key=lambda row: (places.get(row.stage, -1), row.node))

    def asked(self, sender: Peer, message: CheckHost) -> None:
        """Check code for another agent that plans to run it here; a request repeated meanwhile is answered once."""
        if (sender.node, message.request) in self._asked:
            return
        if len(self._asked) >= MAX_CHECKS or self._context.requests.is_full:
            self._context.send(
                sender, HostChecked(message.request, f"{self._context.me.name} is busy with other checks; try again")
            )
            return
        if why := self._verifier.objection_to_check(message.signed_command, message.bundle):
            self._context.drop("command: refused")
            self._context.send(sender, HostChecked(message.request, why))
            return
        self._asked[sender.node, message.request] = None
        self._context.requests.begin(self._check(sender, message))

    async def _check(self, sender: Peer, message: CheckHost) -> None:
        try:
            number = self._context.requests.number()
            effect = CheckCode(number, message.plan, message.bundle, message.stages, message.signed_command)
            answer = (await self._context.ask_driver(number, effect, CHECK)).get(number)
        finally:
            del self._asked[sender.node, message.request]
        if isinstance(answer, Completed) and isinstance(answer.result, HostChecked):
            checked = answer.result
        else:
            reason = answer.reason if isinstance(answer, Failed) else ""
            checked = HostChecked(0, reason or "it could not be checked")
        self._context.send(sender, HostChecked(message.request, checked.refusal, checked.connectors))
