"""`RecordRefresher`: closes records whose responsible node is gone, before users read them."""

from collections.abc import Callable, Coroutine
from typing import Any

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_kernel.instants import Duration
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.records.application import (
    DEPLOYING,
    FAILED,
    RUNNING,
    ApplicationRecord,
    advanced,
    instances_text,
)
from agiledart_node.records.records import Records
from agiledart_node.wire.formation_messages import Acknowledged, QueryActive

AGAIN = "Start it again: agiledart submit …"
BY_ITSELF = f" (submitted with {SAVING}, it would have recovered automatically)"

Halt = Callable[[tuple[Peer, ...], tuple[str, int], str, int], Coroutine[Any, Any, None]]
"""Halts a run on nodes: nodes, (name, version), reason, number of the run."""


class RecordRefresher:
    """Safety net below the watchers: a record says running only while the responsible node answers.

    Args:
        context, records, hosting: of this node.
        halt: ends the run on its hosts.
    """

    def __init__(self, context: NodeContext, records: Records, hosting: ApplicationHost, halt: Halt) -> None:
        self._context, self._records, self._hosting, self._halt = context, records, hosting, halt

    async def all_refreshed(self, records: list[ApplicationRecord]) -> list[ApplicationRecord]:
        """Return the records, closed where the responsible node is gone. Raises CommandRefused: the ring does not answer."""
        questions: dict[int, PeerRequest | None] = {}
        asked: dict[int, int] = {}
        for position, record in enumerate(records):
            if not record.is_final:
                number = asked[position] = self._context.requests.number()
                question = QueryActive(number, record.name, record.version, record.number)
                questions[number] = PeerRequest(_responsible(record), question, Acknowledged)
        answers = await self._context.requests.answers(questions, Duration(self._context.config.report_timeout_ns))
        fresh = []
        for position, record in enumerate(records):
            answer = answers.get(asked[position]) if position in asked else None
            if position not in asked or (answer is not None and not answer.reason):
                fresh.append(record)
            else:
                fresh.append(await self._doubted(record, has_answered=answer is not None))
        return fresh

    async def refreshed(self, record: ApplicationRecord) -> ApplicationRecord:
        """Return one record; see `all_refreshed`."""
        return (await self.all_refreshed([record]))[0]

    async def _doubted(self, record: ApplicationRecord, *, has_answered: bool) -> ApplicationRecord:
        """Close the record when the responsible node is gone: a safety net below the watchers."""
        if record.by_epoch and record.state == RUNNING:
            return record  # its register's coordinator restarts it, or records its failure
        responsible, requests, key = _responsible(record), self._context.requests, (record.name, record.version)
        if not has_answered and not requests.is_gone(responsible):
            if self._context.overlay.is_alive(responsible.node):
                return record  # slow, not dead: the overlay probes it
            # The overlay does not know it: probe it until it answers or is declared dead.
            self._context.watch(responsible)
            number = requests.number()
            question = QueryActive(number, *key, record.number)
            timeout = Duration(self._context.config.consequence_ns)
            answer = await requests.ask(responsible, question, number, Acknowledged, timeout)
            self._context.unwatch(responsible)
            if not (requests.is_gone(responsible) or (answer is not None and answer.reason)):
                return record
            has_answered = answer is not None
        # This node may be on the other side of a partition; only a host of the run can be sure.
        hosted = self._hosting.table.get(key)
        is_unverified = not has_answered and (hosted is None or hosted.host(self._context.me.node) is None)
        name = responsible.name or responsible.node.short
        event = "no longer knows the run" if has_answered else "is gone"

        def close(current: ApplicationRecord) -> ApplicationRecord | None:
            if current.state != record.state:
                return None
            held = instances_text(current, responsible.node)
            seen = f" (seen by {self._context.me.name}, which hosts nothing of it)" if is_unverified else ""
            text = f"{name} {event}{seen}{f' and held {held}' if held else ' and was still deploying it'}. {again_text(current)}"
            return advanced(current, FAILED, text, self._context.wall_ms, is_unverified=is_unverified)

        closed = await self._records.change(*key, close, record.number)
        if closed is None:
            return record
        if closed.is_final and not closed.is_unverified and closed.nodes:
            requests.begin(self._halt((*closed.nodes, *closed.guards), key, closed.reason, record.number))
        return closed

    async def is_alive(self, record: ApplicationRecord) -> bool:
        """Return whether the node responsible for a run answers that it works on it."""
        requests, number = self._context.requests, self._context.requests.number()
        question = QueryActive(number, record.name, record.version, record.number)
        timeout = Duration(self._context.config.report_timeout_ns)
        answer = await requests.ask(_responsible(record), question, number, Acknowledged, timeout)
        return answer is not None and not answer.reason


def _responsible(record: ApplicationRecord) -> Peer:
    """Return the node that must be alive while a record is unfinished: its scheduler, then its coordinator."""
    return record.scheduler if record.state == DEPLOYING or record.coordinator is None else record.coordinator


def again_text(record: ApplicationRecord) -> str:
    """Return the advice after a loss; it mentions saving only to users without it."""
    return AGAIN if record.by_epoch else AGAIN + BY_ITSELF
