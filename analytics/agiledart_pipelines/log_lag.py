"""Lag of a pipeline behind its logs: rows and seconds by partition, and how much of what a log retains is unread.

Asks the agents, and reads the checkpoint of the table that reads the logs; needs no Spark session.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agiledart_kernel.errors import AgileDartError
from agiledart_pipelines.logs import log_options
from agiledart_pipelines.project import PipelineProject


@dataclass(frozen=True)
class LogLag:
    """Lag of one partition of a log.

    Attributes:
        rows: committed and not read.
        seconds: age of the oldest row that is not read; 0 without one.
        unread_share: unread rows as a share of the rows that the log retains: near 1 the log soon removes rows unread.
    """

    rows: int
    seconds: float
    unread_share: float


def read_offsets(project: PipelineProject) -> dict[str, int]:
    """Return key of a log's partition → offset after the last row that the tables have, from Spark's checkpoints."""
    offsets: dict[str, int] = {}
    for commits in (project.state / "storage" / "_checkpoints").glob("**/commits"):
        versions = sorted(int(path.name) for path in commits.parent.parent.iterdir() if path.name.isdigit())
        if str(versions[-1] if versions else "") != commits.parent.name:
            continue  # of before a refresh
        numbers = [int(path.name) for path in commits.iterdir() if path.name.isdigit()]
        if numbers:
            offsets.update(_source_offsets(commits.parent / "offsets" / str(max(numbers))))
    return offsets


def log_lags(
    project: PipelineProject,
    wall_clock: Callable[[], float],
    report: Callable[[str], None] = lambda line: None,
    missing_before: Mapping[str, float] | None = None,
) -> tuple[dict[str, LogLag], dict[str, float]]:
    """Return key of a log's partition → lag, of the logs that answer at once; and log that does not → since when.

    Args:
        wall_clock: seconds since 1970. `report`: takes a line about a log that does not answer.
        missing_before: logs that did not answer the last time, and since when, seconds since 1970.
    """
    from pyspark_agiledart.log_group import LogGroup
    from pyspark_agiledart.reader_options import SKIP, log_and_partition, parse_options

    read = read_offsets(project)
    options = parse_options({**log_options(project.root), "agentTimeout": "0s", "unreachable": SKIP})
    logs = LogGroup(options, report=report)
    lags: dict[str, LogLag] = {}
    answered: set[str] = set()
    try:
        ends = logs.ends()
        answered = {log_and_partition(key)[0] for key in ends}
        for key, retained in ends.items():
            at = max(read.get(key, retained.first), retained.first)
            rows = max(0, retained.committed - at)
            seconds = 0.0
            if rows:
                sink, partition = log_and_partition(key)
                batches = logs.client_of(sink).fetch_parts(sink, partition, at, (), max_rows=1).batches
                seconds = max(0.0, wall_clock() - batches[0].at_ms / 1_000) if batches else 0.0
            lags[key] = LogLag(rows, seconds, rows / max(1, retained.committed - retained.first))
    except AgileDartError as error:
        report(f"agiledart: the lag of the logs is not known: {error}")
    finally:
        logs.close()
    now, before = wall_clock(), missing_before or {}
    wanted = dict.fromkeys([*options.sinks, *(log_and_partition(key)[0] for key in read)])
    return lags, {sink: before.get(sink, now) for sink in wanted if sink not in answered}


def _source_offsets(file: Path) -> dict[str, int]:
    """Return the offsets of the sources that read logs in one file of Spark's offset log."""
    offsets: dict[str, int] = {}
    for line in file.read_text().splitlines()[2:]:  # its version and metadata come first
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            offsets |= {key: value for key, value in document.items() if "/" in key and isinstance(value, int)}
    return offsets
