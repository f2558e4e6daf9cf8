"""Rows that a run has lost: a source moved, and the rows after the last epoch were only in the log on its old node.

Only the lost node knows their number. The coordinator's last report of that node gives a lower limit.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from agiledart_node.records.application import ApplicationRecord, Loss
from agiledart_node.records.summary import statistics_of

MAX_LOSSES: Final = 64
"""Losses that a record lists; of more, the last."""

Reports = Mapping[tuple[int, int], Mapping[str, Any]]


def lines_read(reports: Reports) -> dict[tuple[int, int], int]:
    """Return the positions of sources, by (stage, index)."""
    statistics = ((copy, statistics_of(report)) for copy, report in reports.items())
    return {
        copy: counts.source.lines for copy, counts in statistics if counts is not None and counts.source is not None
    }


def losses_of(attempt: int, before: Mapping[tuple[int, int], int], reports: Reports) -> list[Loss]:
    """Return the losses of sources that began an attempt without their logs.

    Args:
        before: positions of the sources in earlier attempts, as far as reported.
    """
    rows_by_source: dict[str, int] = {}
    for copy, report in sorted(reports.items()):
        statistics = statistics_of(report)
        if (
            statistics is not None
            and statistics.source is not None
            and (behind := statistics.source.lost_behind) is not None
        ):
            name = next(iter(statistics.steps), "")
            rows_by_source[name] = rows_by_source.get(name, 0) + max(0, before.get(copy, 0) - behind)
    return [Loss(attempt, name, rows) for name, rows in rows_by_source.items()]


def with_losses(record: ApplicationRecord, losses: Iterable[Loss]) -> ApplicationRecord | None:
    """Return the record with these losses added; None where it lists them already."""
    known = {(loss.attempt, loss.source) for loss in record.losses}
    new = tuple(loss for loss in losses if (loss.attempt, loss.source) not in known)
    return msgspec.structs.replace(record, losses=(*record.losses, *new)[-MAX_LOSSES:]) if new else None
