"""The last figures of a run that failed or was cut, for its record: of its own instances, of other hosts, and of dead hosts
as the run's coordinator saw them last.
"""

from typing import Any

import msgspec

from agiledart_kernel.instants import Duration
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.hosted_application import HostedApplication, report_copy
from agiledart_node.records.records import Records
from agiledart_node.records.summary import summary_of
from agiledart_node.wire.formation_messages import QueryReports, Reports

Figures = dict[tuple[int, int], dict[str, Any]]
"""Report by (stage, index)."""


class LastFigures:
    """Gathers them; each method is part of a conversation."""

    def __init__(self, context: NodeContext, records: Records) -> None:
        self._context, self._records = context, records

    async def note(self, hosted: HostedApplication) -> None:
        """The record of a run that failed or was cut tells the last figures of its instances, as far as somebody knows them."""
        figures = {**await self.elsewhere(hosted), **hosted.reports}
        summary = summary_of(hosted.part.specification, figures) if figures else {}
        if summary:
            summary["imbalances"] = []  # rows were under way when it ended: nothing adds up, and nothing has to
            await self._records.change(
                *hosted.key,
                lambda record: None if record.summary else msgspec.structs.replace(record, summary=summary),
                hosted.part.number,
            )

    async def elsewhere(self, hosted: HostedApplication) -> Figures:
        """What other hosts tell of their instances; of dead hosts, what the coordinator saw last."""
        others = [peer for peer in hosted.hosts if peer.node != self._context.me.node]
        timeout = Duration(self._context.config.report_timeout_ns)
        answers = await self._context.requests.ask_all(
            others, lambda number, _: QueryReports(number, *hosted.key), Reports, timeout
        )
        places = hosted.part.places()
        seen: Figures = dict(hosted.seen)
        told: Figures = {}
        for peer, answer in answers:
            for key, report in answer.reports.items() if answer is not None else ():
                copy = report_copy(key)
                if copy in places and isinstance(report, dict):
                    (told if places[copy].node == peer.node else seen)[copy] = report
        return {**seen, **told}
