"""The last reports of a run that failed or was cut, for its record.

They come from local instances, from other hosts, and for dead hosts from what the run's coordinator saw last.
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
    """Collects last reports; each method is part of a pending request."""

    def __init__(self, context: NodeContext, records: Records) -> None:
        self._context, self._records = context, records

    async def note(self, hosted: HostedApplication) -> None:
        """Write the totals of the last known reports into the record of a run that failed or was cut."""
        figures = {**await self.elsewhere(hosted), **hosted.reports}
        summary = summary_of(hosted.part.specification, figures) if figures else {}
        if summary:
            summary["imbalances"] = []  # rows were in flight when it ended, so the ledger need not balance
            await self._records.change(
                *hosted.key,
                lambda record: None if record.summary else msgspec.structs.replace(record, summary=summary),
                hosted.part.number,
            )

    async def elsewhere(self, hosted: HostedApplication) -> Figures:
        """Return the reports of instances on other hosts; of dead hosts, the last that the coordinator saw."""
        others = [peer for peer in hosted.hosts if peer.node != self._context.me.node]
        timeout = Duration(self._context.config.report_timeout_ns)
        answers = await self._context.requests.ask_all(
            others, lambda number, _: QueryReports(number, *hosted.key), Reports, timeout
        )
        places = hosted.part.places()
        seen: Figures = dict(hosted.seen)
        received: Figures = {}
        for peer, answer in answers:
            for key, report in answer.reports.items() if answer is not None else ():
                copy = report_copy(key)
                if copy in places and isinstance(report, dict):
                    (received if places[copy].node == peer.node else seen)[copy] = report
        return {**seen, **received}
