"""The `tap` command: a sample of the rows that leave a step, requested from the nodes that run it.

Each request asks the hosts, which keep their taps open for some seconds after the last one. Hosts verify the user's signed
command by the owner of their own part, so that neither an agent nor a false record gives the rows away.
"""

from typing import Any

import msgspec

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import SECOND, Duration, Instant
from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed, did_you_mean
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import HostedApplication
from agiledart_node.records.application import SPECIFICATION_CODEC, ApplicationRecord
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.user_commands.status_queries import StatusQueries
from agiledart_node.wire.commands import Tap
from agiledart_node.wire.effects import ReadTap
from agiledart_node.wire.formation_messages import QueryTap, TapRow, TapRows
from agiledart_node.wire.log_responses import TapResponse, TapSampleRow

MAX_ROWS = 200
"""Rows of one node in one answer."""

MAX_ANSWER_ROWS = 1_000
"""Rows of all nodes in one answer; the rest is dropped, because the answer is a sample in any case."""

MAX_ROW_CHARS = 4_096
"""Characters read of one row; longer than any row of an honest node."""


PERMITTED_NS = 10 * SECOND
"""Time for which a user's permission is remembered; a tap asks once a second."""

MAX_PERMITTED = 64


class TapRequests:
    """Answers `tap`, and other nodes that request rows of a step."""

    def __init__(
        self,
        context: NodeContext,
        status_queries: StatusQueries,
        hosting: ApplicationHost,
        records: Records,
        verifier: CommandVerifier,
    ) -> None:
        self._context, self._status_queries, self._hosting = context, status_queries, hosting
        self._records, self._verifier = records, verifier
        self._permitted: dict[tuple[str, int, bytes], Instant] = {}  # (run, key) → end, oldest first

    async def tap(self, request: int, command: Tap, principal: Principal, signed: bytes) -> None:
        """Answer with rows of all nodes that run the step, each node's in order."""
        principal, _ = self._verifier.identify_requester(signed, command, principal, "")
        record = await self._status_queries.record(command.name, principal, "tap")
        names = display_names(record.nodes)
        hosts = _hosts_of(record, command.step)
        if record.is_final:
            hosts = ()
        answers = await self._context.requests.ask_all(
            hosts,
            lambda number, peer: QueryTap(
                number,
                record.name,
                record.version,
                command.step,
                max(0, command.after.get(names[peer.node], 0)),
                signed,
            ),
            TapRows,
            Duration(self._context.config.report_timeout_ns),
        )
        rows: list[TapSampleRow] = []
        silent, refused, reached, passed = [], [], dict(command.after), 0
        for peer, answer in answers:
            node = names[peer.node]
            if answer is None:
                silent.append(node)
                continue
            passed += answer.passed
            if answer.refused:
                refused.append(f"{node}: {answer.refused}")
            for row in answer.rows[:MAX_ROWS]:
                reached[node] = max(reached.get(node, 0), row.number)
                rows.append(TapSampleRow(node, row.instance, row.time_ms, _plain(row)))
        if refused and len(refused) + len(silent) == len(hosts):
            raise CommandRefused(f"Cannot tap {command.step} of {record.name}: {'; '.join(refused)}.")
        body = TapResponse(
            name=record.name,
            version=record.version,
            state=record.state,
            step=command.step,
            rows=rows[:MAX_ANSWER_ROWS],
            passed=passed,
            after=reached,
            silent_nodes=silent,
        )
        self._context.reply(request, body)

    async def answer_agent(self, sender: Peer, message: QueryTap) -> None:
        """Answer another node with the rows that leave the step here."""
        answer_rows = TapRows(message.request, ())
        hosted = self._hosting.table.get((message.application, message.version))
        if hosted is not None and (refused := await self._refusal(message, hosted)):
            answer_rows = msgspec.structs.replace(answer_rows, refused=refused)
        elif hosted is not None and not hosted.is_closing:
            number = self._context.requests.number()
            effect = ReadTap(number, message.application, message.version, message.step, message.after)
            answers = await self._context.ask_driver(number, effect, self._context.config.report_timeout_ns)
            answer = answers.get(number)
            if isinstance(answer, Completed) and isinstance(answer.result, TapRows):
                answer_rows = msgspec.structs.replace(answer.result, request=message.request)
        self._context.send(sender, answer_rows)

    async def _refusal(self, message: QueryTap, hosted: HostedApplication) -> str:
        """Return why the user may not read rows here; empty: the owner of this node's part permits it."""
        if not self._verifier.requires_signatures:
            return ""
        try:
            wanted = Tap(message.application, message.step)
            principal, _ = self._verifier.identify_requester(message.signed_command, wanted, Principal(), "")
            permitted = (*hosted.key, principal.key)
            if self._permitted.get(permitted, 0) >= self._context.now:
                return ""
            _, record = await self._records.application(message.application, hosted.part)
            self._verifier.check_by_part(principal, "tap", hosted.part, record)
        except CommandRefused as refusal:
            self._context.drop(f"command: {refusal.reason if isinstance(refusal, NotAllowed) else 'no record'}")
            return refusal.text
        self._permitted.pop(permitted, None)
        self._permitted[permitted] = Instant(self._context.now + PERMITTED_NS)
        if len(self._permitted) > MAX_PERMITTED:
            del self._permitted[next(iter(self._permitted))]
        return ""


def _hosts_of(record: ApplicationRecord, step: str) -> tuple[Peer, ...]:
    """Return the nodes that run a step. Raises CommandRefused: the application has no such step."""
    try:
        names = [
            step_specification.name for step_specification in SPECIFICATION_CODEC.decode(record.specification).steps
        ]
    except RemoteProtocolError:
        names = [name for stage in record.stages for name in stage.name.split("+")]
    if step not in names:
        raise CommandRefused(
            f"{record.name} has no step {step!r}.{did_you_mean(step, names)} Steps: {', '.join(names)}", 2
        )
    stages = [number for number, stage in enumerate(record.stages) if step in stage.name.split("+")]
    used = {place.node: True for place in record.assignment if place.stage in stages}
    return tuple(peer for position, peer in enumerate(record.nodes) if position in used)


def _plain(row: TapRow) -> Any:
    try:
        return msgspec.json.decode(row.row[:MAX_ROW_CHARS])
    except msgspec.DecodeError:
        return f"not readable: {row.row[:80]}"
