"""A log of clean trips on a real mesh, its rows as the log itself holds them, and copies of it as Parquet.

Nothing here goes through Spark or through the source that is tested: rows of the log come from the synchronous client
and are decoded here, files are read by pyarrow. So a copy can be compared with the log row by row.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_node.wire.commands import CreateToken
from agiledart_sink_log.client import SinkLogClient
from tests.e2e.mesh import AgentProcess, cli, mesh, wait_for

BUILDER = "agiledart_examples.clean_trips:clean_trips"
SINK = "clean-trips"
COUNT = 3_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = tuple[Any, ...]


@dataclass
class Written:
    """A log of clean trips, and its readers.

    Attributes:
        agent: one of the mesh; it need not have the log.
        token: file with a reader's token.
        sink: name of the log.
    """

    agent: AgentProcess
    token: Path
    sink: str = SINK

    def options(self, **more: str) -> dict[str, str]:
        return {"sink": self.sink, "tokenFile": str(self.token), **more}

    def client(self, patience: float = 20.0) -> SinkLogClient:
        return SinkLogClient([self.agent.address], identity_from_token(f"@{self.token}")[0], patience)

    def committed(self) -> int:
        """Rows that are committed now, all partitions together."""
        with self.client() as client:
            return sum(one.committed for one in client.ends(self.sink).partitions)

    def rows(self) -> "Counter[Row]":
        """Every committed row of the log, as the client hands it out: times as microseconds."""
        with self.client() as client:
            fields = msgspec.json.decode(client.locate(self.sink).schema)["fields"]
            kinds = [str(field["type"]) for field in fields]
            found: Counter[Row] = Counter()
            for one in client.ends(self.sink).partitions:
                at = one.first
                while at < one.committed:
                    got = client.fetch(self.sink, one.partition, at)
                    for batch in got.batches:
                        rows = msgspec.msgpack.decode(batch.body)[max(0, at - batch.offset) :]
                        found.update(tuple(map(_plain, row, kinds)) for row in rows[: one.committed - at])
                        at = min(batch.offset + batch.rows, one.committed)
            return found


def _plain(value: Any, kind: str) -> Any:
    if kind == "datetime":
        return (datetime.fromisoformat(value).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    return value // 1_000 if kind == "read_time" else value


def submit(agent: AgentProcess, source: str, sink: str, name: str = SINK) -> None:
    """Start `clean_trips` from one connector to another."""
    ran = cli(
        *("submit", BUILDER, "--name", name, "--set", f"trips={source}", "--set", f"out={sink}"),
        *("--delivery", "at-most-once"),  # readers are tested: the application ends with its node
        *("--agent", str(agent.state_dir)),
    )
    assert ran.returncode == 0, ran.stderr


def state_of(agent: AgentProcess, name: str = SINK) -> str:
    """The agent's status of an application."""
    told = cli("status", name, "-o", "json", "--agent", str(agent.state_dir))
    return str(json.loads(told.stdout)["state"]) if told.stdout else told.stderr


def wait_for_end(agent: AgentProcess, name: str = SINK, seconds: float = 60.0) -> str:
    """Wait until an application runs no more; how it ended."""
    return str(
        wait_for(
            lambda: state if (state := state_of(agent, name)) in ("finished", "failed", "stopped") else "",
            seconds,
            f"{name} has ended",
        )
    )


def reader_token(agent: AgentProcess, file: Path, scope: str = "") -> Path:
    """A file with a token that admits readers of logs."""
    file.touch(mode=0o600)
    file.write_text(str(agent.ask(CreateToken(role="reader", scope=scope, uses=1_000))["token"]))
    return file


@contextlib.contextmanager
def written_log(folder: Path, count: int = COUNT) -> Iterator[Written]:
    """A mesh of two, and on its first agent the log of an application that has finished."""
    with mesh(2) as made:
        first, second = made.agents
        submit(second, f"taxi:?count={count}@a2", f"log:{SINK}?partitions=4@a1")
        assert wait_for_end(first) == "finished"
        yield Written(first, reader_token(first, folder / "reader.token", f"sink:{SINK}"))


# ---- copies

BATCHES = "foreachBatch"
FILES = "file sink"
FEED = "feed"


def copied(folder: Path, kind: str) -> "Counter[Row]":
    """Every row that a copy holds for its readers, as often as it is there."""
    found: Counter[Row] = Counter()
    for part in _finished_batches(folder) if kind == BATCHES else _committed_files(folder):
        table = pyarrow.parquet.read_table(part, partitioning=None)
        columns = [plain_column(table.column(name)) for name in table.column_names]
        found.update(zip(*columns, strict=True))
    return found


def plain_column(column: Any) -> list[Any]:
    """The values of a column of Arrow; times as microseconds."""
    if pyarrow.types.is_timestamp(column.type):
        column = column.cast(pyarrow.timestamp("us")).cast(pyarrow.int64())
    return list(column.to_pylist())


def _finished_batches(folder: Path) -> list[Path]:
    """Folders of micro-batches that Spark finished; a killed task's folder has no _SUCCESS."""
    return [part for part in sorted(folder.glob("batch=*")) if (part / "_SUCCESS").exists()]


def _committed_files(folder: Path) -> list[Path]:
    """Files that the file sink's own log names: its readers see these and no others."""
    named: set[str] = set()
    for entry in (folder / "_spark_metadata").glob("[0-9]*"):
        for line in entry.read_text().splitlines()[1:]:
            described = json.loads(line)
            named.add(described["path"].removeprefix("file://"))
    return [Path(name) for name in sorted(named)]
