"""Several logs that a query reads as one table: their schemas joined, and their ends asked in parallel.

A field that only some logs have is null for the others. A field with another type is refused, both logs named. A log whose agent is
away is left out of an answer and reported, with the time since when; the query's option says what follows.
"""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.protocol import UNKNOWN_SINK
from agiledart_transport.request_reasons import NOT_ALLOWED
from pyspark_agiledart import connection
from pyspark_agiledart.read_limits import RetainedRange
from pyspark_agiledart.reader_options import FAIL, ReaderOptions, offset_key
from pyspark_agiledart.types import Fields, parse_schema

if TYPE_CHECKING:
    from pyspark_agiledart.connection import LogClient

A = TypeVar("A")

RETRY_SECONDS: Final = 0.5
"""Time between two requests to agents that are away."""

REPORT_SECONDS: Final = 60.0
"""Time between two reports of the logs that are still missing."""

LIST_SECONDS: Final = 10.0
"""Time between two searches for new logs that fit a pattern."""

MAX_CONNECTIONS: Final = 4
"""Number of threads, each with a client of its own, that ask logs at the same time. A client connects to each agent once."""


class LogGroup:
    """Logs of one query and their agents; holds sockets, so it is never pickled.

    Args:
        timeout_s: seconds of retries while an agent is away; 0 asks once.
        report: takes a line about a log that went missing or came back.
        clock: monotonic seconds. `pause`: waits seconds.
    """

    def __init__(
        self,
        options: ReaderOptions,
        timeout_s: float = 0.0,
        report: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options, self._report, self._clock, self._pause = options, report or report_to_stderr, clock, pause
        self._timeout_s, self._is_single = timeout_s, not options.is_several
        self._sinks, self._listed_at = list(options.sinks), -math.inf
        self._clients: dict[int, LogClient] = {}
        self.missing_since: dict[str, float] = {}
        self._reported_at = -math.inf
        self._silent: dict[str, int] = {}

    def sinks(self) -> tuple[str, ...]:
        """Return the logs to read: those that are named, and those that fit a pattern, as known by now. None is dropped again.

        Raises `SinkLogError` when they cannot be listed at first.
        """
        from agiledart_sink_log.client import SinkLogError

        if self._options.patterns and self._clock() >= self._listed_at + LIST_SECONDS:
            try:
                for pattern in self._options.patterns:
                    listed = self._client(0).logs(pattern)
                    self._sinks += [name for name in listed.sinks if name not in self._sinks]
                    self._report_silent(pattern, listed.silent)
            except SinkLogError as error:
                if self._listed_at == -math.inf:
                    raise
                self._report(
                    f"agiledart: new logs that fit {', '.join(self._options.patterns)} are not looked for: {error}"
                )
            self._listed_at = self._clock()
        return tuple(self._sinks)

    def ends(self, after: Mapping[str, int] | None = None, wait_ms: int = 0) -> dict[str, RetainedRange]:
        """Return key of a partition → retained rows, of each log that answers.

        Args:
            after, wait_ms: a single log is asked to answer after so long, or when there are rows after these offsets.

        Raises `SinkLogError` when a grant lacks a log, `OperationFailed` when a log is missing for too long (`unreachable=fail`).
        """
        from agiledart_sink_log.client import SinkLogError

        latest, is_single = self._options.latest, self._is_single

        def ask(client: "LogClient", sink: str) -> dict[str, RetainedRange] | SinkLogError:
            known = {int(key.rpartition("/")[2]): offset for key, offset in (after or {}).items()} if is_single else {}
            try:
                answer = client.ends(sink, wait_ms if is_single else 0, known, uncommitted=latest)
            except SinkLogError as error:
                return error
            ranges = connection.retained_ranges(answer, latest)
            return {offset_key(sink, partition): retained for partition, retained in ranges.items()}

        ranges: dict[str, RetainedRange] = {}
        asked_at = self._clock()
        for sink, answer in self._in_parallel(ask).items():
            if isinstance(answer, SinkLogError):
                self._note_missing(sink, answer, asked_at)
            else:
                self._note_present(sink)
                ranges.update(answer)
        if self._options.unreachable == FAIL:
            # An answer to requests that were repeated until the timeout comes up to a pause before it.
            self.check_missing(max(0.0, self._options.agent_timeout_s - RETRY_SECONDS))
        self._report_missing()
        return ranges

    def schemas(self) -> dict[str, Fields]:
        """Return the fields of each log that is located. Raises `SinkLogError` when there is none."""
        from agiledart_sink_log.client import SinkLogError

        def ask(client: "LogClient", sink: str) -> Fields | SinkLogError:
            try:
                located = client.locate(sink)
            except SinkLogError as error:
                return error
            return parse_schema(located.schema)

        asked_at = self._clock()
        answers = self._in_parallel(ask)
        if not answers:
            raise ConfigurationError(
                f"No log fits sink={self._options.sink}. Logs appear once a sink has written to them; a reader's token for a "
                f"pattern has no scope."
            )
        fields = {sink: answer for sink, answer in answers.items() if not isinstance(answer, SinkLogError)}
        errors = {sink: answer for sink, answer in answers.items() if isinstance(answer, SinkLogError)}
        for sink, error in errors.items():
            if error.reason == NOT_ALLOWED or not fields:
                raise _naming(sink, error, len(answers))
            self._note_missing(sink, error, asked_at)
        return fields

    def client_of(self, sink: str) -> "LogClient":
        """Return a connected client that was used for a log."""
        return self._client(self._sinks.index(sink) % MAX_CONNECTIONS)

    def close(self) -> None:
        """Close all connections; the group can be used again."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _in_parallel(self, ask: "Callable[[LogClient, str], A]") -> dict[str, A]:
        """Return log → answer. Agents that are away are asked again until the timeout, all together."""
        sinks = self.sinks()
        deadline = self._clock() + self._timeout_s
        answers = self._ask_all(ask, sinks)
        while not self._is_single and self._clock() + RETRY_SECONDS < deadline:
            away = [sink for sink in sinks if self._is_awaited(answers[sink])]
            if not away:
                break
            self._pause(RETRY_SECONDS)
            answers |= self._ask_all(ask, away)
        return answers

    def _ask_all(self, ask: "Callable[[LogClient, str], A]", sinks: Sequence[str]) -> dict[str, A]:
        """Return log → answer; each thread asks its own part of the logs with its own client."""
        parts = [sinks[number::MAX_CONNECTIONS] for number in range(min(MAX_CONNECTIONS, len(sinks)))]

        def ask_part(number: int) -> dict[str, A]:
            client = self._client(number)
            return {sink: ask(client, sink) for sink in parts[number]}

        if len(parts) < 2:
            return ask_part(0) if parts else {}
        with ThreadPoolExecutor(len(parts)) as threads:
            answers = {
                sink: answer for part in threads.map(ask_part, range(len(parts))) for sink, answer in part.items()
            }
        return {sink: answers[sink] for sink in sinks}

    def _client(self, number: int) -> "LogClient":
        client = self._clients.get(number)
        if client is None:
            # One of several logs that is away must not hold up the others: they are retried together.
            client = connection.open_client(self._options, self._timeout_s if self._is_single else 0.0)
            self._clients[number] = client
        return client

    def _is_awaited(self, answer: object) -> bool:
        """Return whether a log is asked again: its agent is away, or the query needs all logs and this one is not known yet."""
        from agiledart_sink_log.client import SinkLogError

        refusals = (NOT_ALLOWED,) if self._options.unreachable == FAIL else (NOT_ALLOWED, UNKNOWN_SINK)
        return isinstance(answer, SinkLogError) and answer.reason not in refusals

    def _note_missing(self, sink: str, error: Exception, asked_at: float) -> None:
        from agiledart_sink_log.client import SinkLogError

        assert isinstance(error, SinkLogError)
        if self._is_single:
            raise error
        if error.reason == NOT_ALLOWED:
            raise _naming(sink, error, len(self._sinks))
        if sink not in self.missing_since:
            self.missing_since[sink], self._reported_at = asked_at, self._clock()
            what = "does not exist yet" if error.reason == UNKNOWN_SINK else "is away"
            self._report(f"agiledart: the log {sink} {what}; reading goes on without it ({error})")

    def _note_present(self, sink: str) -> None:
        since = self.missing_since.pop(sink, None)
        if since is not None:
            self._report(f"agiledart: the log {sink} is there again after {self._clock() - since:.0f} s")

    def _report_silent(self, pattern: str, agents: int) -> None:
        """Report agents that did not answer a search, once until their number changes: logs that only they have are not known."""
        if agents and agents != self._silent.get(pattern):
            self._report(
                f"agiledart: {agents} {'agents' if agents > 1 else 'agent'} did not answer the search for logs that fit {pattern}; "
                f"reading goes on without the logs that only they have"
            )
        self._silent[pattern] = agents

    def _report_missing(self) -> None:
        """Report the logs that are still missing, and since when, once a minute."""
        now = self._clock()
        if self.missing_since and now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._report(f"agiledart: {missing_logs({sink: now - at for sink, at in self.missing_since.items()})}")

    def check_missing(self, longest_s: float) -> None:
        """Raise `OperationFailed` when a log is missing for longer than `longest_s`, seconds."""
        now = self._clock()
        late = {sink: now - since for sink, since in self.missing_since.items() if now - since >= longest_s}
        if late:
            raise OperationFailed(f"{missing_logs(late)}. Start their agents, or read without them: unreachable=skip.")


def missing_logs(seconds: Mapping[str, float]) -> str:
    """Return a sentence that names logs and for how long they are missing."""
    names = ", ".join(f"{sink} (for {span:.0f} s)" for sink, span in sorted(seconds.items()))
    return f"{len(seconds)} of the logs cannot be read: {names}"


def joined_fields(fields_of: Mapping[str, Fields]) -> Fields:
    """Return the fields of all logs together, in the order of the first log. Raises `ConfigurationError` for a changed type."""
    joined: Fields = ()
    owners: dict[str, str] = {}
    for sink, fields in fields_of.items():
        known = dict(joined)
        for name, kind in fields:
            if name not in known:
                joined = (*joined, (name, kind))
                owners[name] = sink
            elif (known[name].name, known[name].parts) != (kind.name, kind.parts):
                raise ConfigurationError(
                    f"The field {name} is {known[name].name} in the log {owners[name]} and {kind.name} in the log {sink}. "
                    f"Rename the field in one of them, or read the logs apart."
                )
    return joined


def report_to_stderr(line: str) -> None:
    """Print a line on the stderr of Spark's driver."""
    sys.stderr.write(f"{line}\n")


def _naming(sink: str, error: Exception, logs: int) -> Exception:
    """Return the error of one of several logs with the log's name in it."""
    from agiledart_sink_log.client import SinkLogError

    if logs == 1 or not isinstance(error, SinkLogError) or sink in str(error):
        return error
    return SinkLogError(f"The log {sink}: {error}", error.reason, error.first_kept)
