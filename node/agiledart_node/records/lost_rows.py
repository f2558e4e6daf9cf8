"""Rows that a run has lost: a source moved, and what only the log on its old node had, behind the last epoch, is gone.

Nobody knows how many these were but the node that is gone. What the coordinator had last heard of it is a lower bound.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from agiledart_node.records.application import ApplicationRecord, Loss
from agiledart_node.records.summary import statistics_of

MAX_LOSSES: Final = 64
"""That a record tells one by one; of more, the last of them."""

Reports = Mapping[tuple[int, int], Mapping[str, Any]]


def lines_read(reports: Reports) -> dict[tuple[int, int], int]:
    """How far sources were, by (stage, index)."""
    told = ((copy, statistics_of(report)) for copy, report in reports.items())
    return {copy: one.source.lines for copy, one in told if one is not None and one.source is not None}


def losses_of(attempt: int, before: Mapping[tuple[int, int], int], reports: Reports) -> list[Loss]:
    """What sources have lost that began a life without their logs.

    Args:
        before: how far they were in earlier lives, as far as that was heard.
    """
    found: dict[str, int] = {}
    for copy, report in sorted(reports.items()):
        told = statistics_of(report)
        if told is not None and told.source is not None and (behind := told.source.lost_behind) is not None:
            name = next(iter(told.steps), "")
            found[name] = found.get(name, 0) + max(0, before.get(copy, 0) - behind)
    return [Loss(attempt, name, rows) for name, rows in found.items()]


def with_losses(record: ApplicationRecord, losses: Iterable[Loss]) -> ApplicationRecord | None:
    """The record that tells these, too; None where it does."""
    known = {(loss.attempt, loss.source) for loss in record.losses}
    new = tuple(loss for loss in losses if (loss.attempt, loss.source) not in known)
    return msgspec.structs.replace(record, losses=(*record.losses, *new)[-MAX_LOSSES:]) if new else None
