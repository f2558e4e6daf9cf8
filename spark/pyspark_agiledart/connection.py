"""Connection to the log: a client made from options, and the parts of its answers that a reader needs.

A client holds sockets: each process creates its own at its first request, and none is ever pickled (`idle_clients.py`).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from agiledart_sink_log.protocol import EndsReply, Located, LogsListed
from pyspark_agiledart.idle_clients import ClientKey, IdleClients, client_identity, client_key
from pyspark_agiledart.read_limits import RetainedRange
from pyspark_agiledart.reader_options import ReaderOptions

if TYPE_CHECKING:
    from agiledart_sink_log.client import ReceivedRows, SinkLogClient
    from agiledart_sink_log.column_index import ZoneCondition


class LogClient(Protocol):
    """Requests of a reader; `agiledart_sink_log.client.SinkLogClient` implements them. Raises `SinkLogError`."""

    def logs(self, pattern: str) -> LogsListed:
        """Return the logs that fit a pattern, as far as their agents answer."""
        ...

    def locate(self, sink: str) -> Located:
        """Return the location of the log and the schema of its rows."""
        ...

    def ends(
        self, sink: str, wait_ms: int = 0, after: Mapping[int, int] | None = None, *, uncommitted: bool = False
    ) -> EndsReply:
        """Return first and committed offset of each partition."""
        ...

    def fetch_parts(
        self,
        sink: str,
        partition: int,
        offset: int,
        columns: Sequence[int],
        where: Sequence["ZoneCondition"] = (),
        *,
        max_rows: int = 100_000,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        uncommitted: bool = False,
    ) -> "ReceivedRows":
        """Return stored batches from an offset on, by columns where they are stored so."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


_IDLE: "Final[IdleClients[SinkLogClient]]" = IdleClients()


class PooledClient:
    """Client of one task. Its methods are those of `LogClient`.

    Args:
        key: by which the client is used again.
    """

    def __init__(self, client: "SinkLogClient", key: ClientKey, idle: "IdleClients[SinkLogClient]") -> None:
        self._client: SinkLogClient | None = client
        self._key, self._idle = key, idle
        self.locate, self.ends, self.logs = client.locate, client.ends, client.logs
        self.fetch_parts = client.fetch_parts

    def close(self) -> None:
        """Keep the client for the next task; a second call has no effect."""
        client, self._client = self._client, None
        if client is not None:
            self._idle.give(self._key, client)


def open_client(options: ReaderOptions, agent_timeout_s: float) -> LogClient:
    """Return a client for the sink of these options: one that an earlier task has released, or a new one, which connects later.

    Args:
        agent_timeout_s: seconds of retries while the agent is unreachable; 0 tries once.

    Raises `ConfigurationError` without a token, `OperationFailed` for an invalid one.
    """
    from agiledart_sink_log.client import SinkLogClient

    key = client_key(options)
    client = _IDLE.take(key)
    if client is None:
        purpose = f"Reading the sink {options.sink}"
        identity, bootstrap = client_identity(options, purpose, "reader", f"sink:{options.sink}")
        client = SinkLogClient(bootstrap, identity)
    client.agent_timeout_s = agent_timeout_s
    return PooledClient(client, key, _IDLE)


def retained_ranges(answer: EndsReply, latest: bool = False) -> dict[int, RetainedRange]:
    """Return the retained rows of each partition; with `latest` written rows count as committed."""
    return {
        ends.partition: RetainedRange(ends.first, max(ends.latest, ends.committed) if latest else ends.committed)
        for ends in answer.partitions
    }
