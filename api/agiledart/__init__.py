"""AgileDart: stream processing at the edge without a master. This package has the public names; all others are internal.

Build a `Topology` from sources, steps and sinks, run it here with `agiledart run`, or submit it to a mesh of agents:

    topology = Topology("room-temperatures")
    (
        topology.source("readings", readings, event_time=lambda reading: reading.at)
        .key_by(lambda reading: reading.room)
        .window(tumbling(timedelta(minutes=1)))
        .aggregate("per-minute", mean_of(lambda reading: reading.celsius))
        .sink("report", report)
    )

`connect` opens a mesh from Python: submit, look, tap, stop.

Importing this package loads no event loop, no cryptography, no terminal library.
"""

from typing import TYPE_CHECKING

from agiledart.aggregates import all_of, count_of, max_of, mean_of, min_of, sum_of
from agiledart.connectors import (
    batches,
    collect,
    csv,
    feed,
    http,
    influx,
    jsonl,
    kafka,
    lines,
    log,
    mqtt,
    null,
    parquet,
    plugin,
    records,
    sql,
    stdout,
    taxi,
    tcp,
    whole_file,
)
from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_dataflow.aggregation.aggregators import Aggregator
from agiledart_dataflow.data.rows import Change, DeadLetter, Either, Entry, Joined, Match, Pane, Ranking
from agiledart_dataflow.data.schema import Alias, Format, Loose, ReadTime, Retained, Topic
from agiledart_dataflow.event_time.windows import counted, hopping, session, sliding, tumbling
from agiledart_dataflow.expressions.aggregates import count, window_end, window_start
from agiledart_dataflow.expressions.expression import Expression, col, lit, maximum, minimum, when
from agiledart_dataflow.graph.streams import KeyedStream, PaneStream, SlidingStream, Stream
from agiledart_dataflow.graph.topology import Topology
from agiledart_dataflow.operators.keyed import BroadcastOperator, Context, KeyedOperator
from agiledart_dataflow.operators.patterns import never
from agiledart_dataflow.plan.connectors import Connector, Sink, Source
from agiledart_dataflow.plan.overload import Overload
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed, TopologyError, UserCodeError

if TYPE_CHECKING:
    from agiledart_control.async_mesh_client import AsyncMeshClient
    from agiledart_control.mesh_client import MeshClient

__all__ = [
    "Aggregator",
    "AgileDartError",
    "Alias",
    "BroadcastOperator",
    "Change",
    "CommandRefusedError",
    "ConfigurationError",
    "Connector",
    "Context",
    "DeadLetter",
    "Either",
    "Entry",
    "Expression",
    "Format",
    "Joined",
    "KeyedOperator",
    "KeyedStream",
    "Loose",
    "Match",
    "NoAgentError",
    "OperationFailed",
    "Overload",
    "Pane",
    "PaneStream",
    "Ranking",
    "ReadTime",
    "Retained",
    "Sink",
    "SlidingStream",
    "Source",
    "Stream",
    "Topic",
    "Topology",
    "TopologyError",
    "UserCodeError",
    "all_of",
    "batches",
    "col",
    "collect",
    "connect",
    "connect_async",
    "count",
    "count_of",
    "counted",
    "csv",
    "feed",
    "hopping",
    "http",
    "influx",
    "jsonl",
    "kafka",
    "lines",
    "lit",
    "log",
    "max_of",
    "maximum",
    "mean_of",
    "min_of",
    "minimum",
    "mqtt",
    "never",
    "null",
    "parquet",
    "plugin",
    "records",
    "session",
    "sliding",
    "sql",
    "stdout",
    "sum_of",
    "taxi",
    "tcp",
    "tumbling",
    "when",
    "whole_file",
    "window_end",
    "window_start",
]


def connect(agent: str | None = None, identity: str | None = None) -> "MeshClient":
    """Open a mesh by one of its agents; use the result as a context manager, or close it.

    Args:
        agent: state directory, socket, name of an agent of `agiledart up`, or HOST:PORT; None: as the command line chooses.
        identity: token, `@FILE` with a token, or name of an identity, for an agent at HOST:PORT.

    Raises:
        NoAgentError: no agent answers there.
        ConfigurationError: the identity is missing, or is not needed.
    """
    from agiledart_control.mesh_client import MeshClient

    return MeshClient(agent, identity)


def connect_async(agent: str | None = None, identity: str | None = None) -> "AsyncMeshClient":
    """Return a mesh whose methods are awaited, for `async with`; arguments and errors as of `connect`."""
    from agiledart_control.async_mesh_client import AsyncMeshClient

    return AsyncMeshClient(agent, identity)
