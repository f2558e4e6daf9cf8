"""Many small logs on many agents as one stream: agents are killed and logs are added in mid-stream. The large series is

AGILEDART_LOG_AGENTS=10 AGILEDART_LOGS=50 python -m pytest tests/spark/test_logs_of_many_agents.py -s
"""

import contextlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from agiledart_sink_log.client import SinkLogError
from agiledart_sink_log.layout import NEVER
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.row_form import encoded, row_form
from tests.e2e.mesh import AgentProcess, Mesh, mesh, wait_for
from tests.spark.kills import commits, driver
from tests.spark.written import FILES, Written, copied, reader_token

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.xdist_group("spark"), pytest.mark.timeout(1_800)]

AGENTS = int(os.environ.get("AGILEDART_LOG_AGENTS", "4"))
LOGS = int(os.environ.get("AGILEDART_LOGS", "3"))
"""Logs of each agent."""

ADDED = 5
ROWS = 40
KILLED = max(1, AGENTS // 5)
SECONDS = 900.0
START_SECONDS = 300.0
"""Longest time until all agents are in the ring; many start at once."""


class Numbered(NamedTuple):
    log: str
    number: int


Rows = Counter[tuple[str, int]]


def add_log(agent: AgentProcess, name: str) -> Rows:
    """Write a log where an agent serves it, and return its rows. The agent announces it within half a minute."""
    rows = [Numbered(name, number) for number in range(ROWS)]
    form = row_form(Numbered)
    log = LogWriter(agent.state_dir, name, LogOptions(1, columns=NEVER), form.text, form.fields, "many", 1)
    for body, count in encoded(rows):
        log.partitions[0].append(body, count)
    log.commit()
    log.close()
    return Counter(tuple(row) for row in rows)


def add_logs(made: Mesh) -> dict[str, Rows]:
    """Return agent → rows of its logs."""
    return {
        agent.name: sum((add_log(agent, f"many-{agent.name}-{number}") for number in range(LOGS)), Counter())
        for agent in made.agents
    }


def wait_until_located(written: Written, logs: int) -> None:
    """Wait until agents list so many logs, and the ring knows where each is: a query fails when it knows none of them."""
    with written.client(60.0) as client:
        wait_for(lambda: len(client.logs("many-*").sinks) >= logs, SECONDS, f"{logs} logs are listed")
        unknown = list(client.logs("many-*").sinks)

        def are_known() -> bool:
            with contextlib.suppress(SinkLogError):
                while unknown:
                    client.locate(unknown[-1])
                    unknown.pop()
            return not unknown

        wait_for(are_known, SECONDS, f"{logs} logs are located")


def read_without(written: Written, folder: Path, living: Rows, missing: list[str]) -> None:
    """Copy what there is with `unreachable=skip`: it ends, has all rows of living agents, and names each log that is missing.

    The query names its logs, because a pattern finds those of living agents.
    """
    names = ",".join(sorted({log for log, _ in living} | set(missing)))
    written = Written(written.agent, written.token, names)
    folder.mkdir()
    began = time.monotonic()
    with driver(folder) as spark:
        spark.begin(folder, written, FILES, 0, living.total(), unreachable="skip", agentTimeout="20s")
        spark.end()
        assert copied(folder / "copy", FILES) == living, spark.said()
        said = spark.said() + (folder / "spark.log").read_text(errors="replace")
    assert [log for log in missing if f"the log {log} is away" not in said] == []
    print(f"skip: {living.total()} rows, {len(missing)} missing logs named, after {time.monotonic() - began:.0f} s")


def test_a_stream_of_many_logs_goes_on_and_ends_exact(tmp_path: Path) -> None:
    with mesh(1) as made, driver(tmp_path) as spark:
        made.add([AgentProcess(f"a{number}", made.folder) for number in range(2, AGENTS + 1)], START_SECONDS)
        by_agent = add_logs(made)
        first, victims = made.agents[0], made.agents[-KILLED:]
        written = Written(first, reader_token(first, tmp_path / "reader.token"), "many-*")
        began = time.monotonic()
        wait_until_located(written, AGENTS * LOGS)
        print(f"{AGENTS * LOGS} logs on {AGENTS} agents are located after {time.monotonic() - began:.0f} s")
        reader = written.options(maxRowsPerBatch=str(AGENTS * LOGS * ROWS // 5))
        task = {"reader": reader, "folder": str(tmp_path), "kind": FILES, "seconds": 0.5}
        assert spark.process.stdin is not None
        began = time.monotonic()
        spark.process.stdin.write(msgspec.json.encode(task).decode() + "\n")
        spark.process.stdin.flush()

        def is_copied(rows: Rows) -> bool:
            assert not spark.has_answered(), spark.answer()
            return not rows - copied(tmp_path / "copy", FILES)

        wait_for(lambda: commits(tmp_path) >= 1 or spark.has_answered(), SECONDS, "a micro-batch")
        for victim in victims:
            victim.kill()
        added = {f"many-added-{number}": made.agents[number % (AGENTS - KILLED)] for number in range(ADDED)}
        by_agent["added"] = sum((add_log(agent, name) for name, agent in added.items()), Counter())
        living = sum((rows for name, rows in by_agent.items() if name not in {v.name for v in victims}), Counter())
        wait_for(lambda: is_copied(living), SECONDS, "the stream goes on without the killed agents, with the new logs")
        print(f"all rows of living agents after {time.monotonic() - began:.0f} s, {commits(tmp_path)} micro-batches")
        said = spark.said() + (tmp_path / "spark.log").read_text(errors="replace")
        assert f"the log many-{victims[0].name}-0 is away; reading goes on without it" in said
        read_without(
            written, tmp_path / "skip", living, [f"many-{v.name}-{number}" for v in victims for number in range(LOGS)]
        )
        for victim in victims:
            victim.start()
            victim.ready(START_SECONDS)
        everything = sum(by_agent.values(), Counter())
        wait_for(lambda: is_copied(everything), SECONDS, "the killed agents' rows are copied")
        assert copied(tmp_path / "copy", FILES) == everything
        print(f"all {everything.total()} rows once after {time.monotonic() - began:.0f} s")
