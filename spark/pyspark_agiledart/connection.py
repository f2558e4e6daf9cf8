"""Connection to the log: a client made from options, and the parts of its answers that a reader needs.

A client holds sockets: each process creates its own at its first request, and none is ever pickled. A worker of Spark runs many
tasks, one after the other, and a new connection costs 7 ms of CPU at both ends. So a closed client stays for the next task.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from agiledart_kernel.errors import ConfigurationError
from agiledart_sink_log.protocol import EndsReply, Located
from pyspark_agiledart.read_limits import RetainedRange
from pyspark_agiledart.reader_options import TOKEN_VARIABLE, ReaderOptions

if TYPE_CHECKING:
    from agiledart_sink_log.client import ReceivedRows, SinkLogClient
    from agiledart_sink_log.column_index import ZoneCondition

MAX_IDLE: Final = 8
"""Clients that a process keeps: one for each of its threads that ask agents."""

IDLE_SECONDS: Final = 60.0
"""Time after which an unused client is closed, at the next use of another one."""

ReaderIdentity = tuple[tuple[str, ...], str, str, str]
"""Agents to ask, identity file, token file, token of the environment: readers with the same may share a connection."""


class LogClient(Protocol):
    """Requests of a reader; `agiledart_sink_log.client.SinkLogClient` implements them. Raises `SinkLogError`."""

    def logs(self, pattern: str) -> tuple[str, ...]:
        """Return the names of the logs that fit a pattern."""
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


class IdleClients:
    """Clients of one process that no task uses.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: list[tuple[float, ReaderIdentity, SinkLogClient]] = []

    def take(self, identity: "ReaderIdentity") -> "SinkLogClient | None":
        """Return a client of this reader, the last used one; None when there is none."""
        with self._lock:
            self._drop_old()
            for place in range(len(self._idle) - 1, -1, -1):
                if self._idle[place][1] == identity:
                    return self._idle.pop(place)[2]
        return None

    def give(self, identity: "ReaderIdentity", client: "SinkLogClient") -> None:
        """Keep a client for a later task."""
        with self._lock:
            self._drop_old()
            self._idle.append((self._clock(), identity, client))
            while len(self._idle) > MAX_IDLE:
                self._idle.pop(0)[2].close()

    def _drop_old(self) -> None:
        if self._process != os.getpid():  # forked: the sockets are the parent's
            self._process = os.getpid()
            self._idle.clear()
        while self._idle and self._clock() - self._idle[0][0] > IDLE_SECONDS:
            self._idle.pop(0)[2].close()


_IDLE = IdleClients()


class PooledClient:
    """Client of one task. Its methods are those of `LogClient`.

    Args:
        identity: by whom the client is used again.
    """

    def __init__(self, client: "SinkLogClient", identity: "ReaderIdentity", idle: IdleClients) -> None:
        self._client: SinkLogClient | None = client
        self._identity, self._idle = identity, idle
        self.locate, self.ends, self.logs = client.locate, client.ends, client.logs
        self.fetch_parts = client.fetch_parts

    def close(self) -> None:
        """Keep the client for the next task; a second call has no effect."""
        client, self._client = self._client, None
        if client is not None:
            self._idle.give(self._identity, client)


def open_client(options: ReaderOptions, agent_timeout_s: float) -> LogClient:
    """Return a client for the sink of these options: one that an earlier task has released, or a new one, which connects later.

    Args:
        agent_timeout_s: seconds of retries while the agent is unreachable; 0 tries once.

    Raises `ConfigurationError` without a token, `OperationFailed` for an invalid one.
    """
    from pathlib import Path

    from agiledart_agent.identity.reader_identity import identity_from_token, read_identity
    from agiledart_sink_log.client import SinkLogClient

    reader = (options.bootstrap, options.identity_file, options.token_file, os.environ.get(TOKEN_VARIABLE, ""))
    if (client := _IDLE.take(reader)) is not None:
        client.agent_timeout_s = agent_timeout_s
        return PooledClient(client, reader, _IDLE)
    if options.identity_file:
        identity, addresses = read_identity(Path(options.identity_file).expanduser())
    else:
        given = f"@{options.token_file}" if options.token_file else os.environ.get(TOKEN_VARIABLE, "")
        if not given:
            raise ConfigurationError(
                f"Reading the sink {options.sink} needs a token: make one with  agiledart token create --role reader "
                f"--scope sink:{options.sink}  , keep it in a file of mode 0600 on every machine of Spark, and name that with "
                f".option('tokenFile', …), or set {TOKEN_VARIABLE}."
            )
        identity, addresses = identity_from_token(given)
    bootstrap = options.bootstrap or addresses
    if not bootstrap:
        raise ConfigurationError("The token names no agent; say one with .option('bootstrap', 'HOST:PORT').")
    return PooledClient(SinkLogClient(bootstrap, identity, agent_timeout_s), reader, _IDLE)


def retained_ranges(answer: EndsReply, latest: bool = False) -> dict[int, RetainedRange]:
    """Return the retained rows of each partition; with `latest` written rows count as committed."""
    return {
        ends.partition: RetainedRange(ends.first, max(ends.latest, ends.committed) if latest else ends.committed)
        for ends in answer.partitions
    }
