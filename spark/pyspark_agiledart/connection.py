"""Connection to the log: a client made from options, and the parts of its answers that a reader needs.

A client holds sockets: each process creates its own at its first request, and none is ever pickled.
"""

import os
from collections.abc import Mapping
from typing import Protocol

from agiledart_kernel.errors import ConfigurationError
from agiledart_sink_log.protocol import EndsReply, Fetched, Located
from pyspark_agiledart.read_limits import RetainedRange
from pyspark_agiledart.reader_options import TOKEN_VARIABLE, ReaderOptions


class LogClient(Protocol):
    """Requests of a reader; `agiledart_sink_log.client.SinkLogClient` implements them. Raises `SinkLogError`."""

    def locate(self, sink: str) -> Located:
        """Return the location of the log and the schema of its rows."""
        ...

    def ends(
        self, sink: str, wait_ms: int = 0, after: Mapping[int, int] | None = None, *, uncommitted: bool = False
    ) -> EndsReply:
        """Return first and committed offset of each partition."""
        ...

    def fetch(
        self,
        sink: str,
        partition: int,
        offset: int,
        *,
        max_rows: int = 100_000,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        uncommitted: bool = False,
    ) -> Fetched:
        """Return stored batches from an offset on."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def open_client(options: ReaderOptions, agent_timeout_s: float) -> LogClient:
    """Return a client for the sink of these options; it connects later.

    Args:
        agent_timeout_s: seconds of retries while the agent is unreachable; 0 tries once.

    Raises `ConfigurationError` without a token, `OperationFailed` for an invalid one.
    """
    from pathlib import Path

    from agiledart_agent.identity.reader_identity import identity_from_token, read_identity
    from agiledart_sink_log.client import SinkLogClient

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
    return SinkLogClient(bootstrap, identity, agent_timeout_s)


def retained_ranges(answer: EndsReply, latest: bool = False) -> dict[int, RetainedRange]:
    """Return the retained rows of each partition; with `latest` written rows count as committed."""
    return {
        ends.partition: RetainedRange(ends.first, max(ends.latest, ends.committed) if latest else ends.committed)
        for ends in answer.partitions
    }
