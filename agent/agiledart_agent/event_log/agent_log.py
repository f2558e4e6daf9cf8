"""Log of an agent: one event a line, for people or as JSON; and bounded storage of what user code printed.

A quiet node logs nothing. Refusals are always counted and logged once per reason, so a stranger cannot fill a disk.
"""

import json
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, TextIO

from agiledart_agent.event_log.observation_events import log_event_of
from agiledart_kernel.limits import MAX_LOG_LINES
from agiledart_kernel.observation import Observation
from agiledart_kernel.text import harmless_lines

MAX_LOGGED_APPLICATIONS = 256
"""Applications whose printed lines are kept. The application that printed least recently is forgotten first."""

MAX_PRINTED_CHARS = 4 << 20
"""Characters of an application's lines that are kept: ten thousand of the longest lines would be 40 MB."""

MAX_ALL_PRINTED_CHARS = 16 << 20
"""The same for all applications together."""

MAX_ANSWER_CHARS = 256 << 10
"""Characters in one answer; a reader that wants more asks again."""


MAX_REASONS = 64
"""Different reasons of refusals that are counted; they are labels of a metric, and peers and executors send some."""

QUIET_SECONDS = 60.0
"""Least time between two lines of one kind of observation. The next line has the number of suppressed ones."""


class AgentLog:
    """Writer of events to standard error.

    Args:
        format: `console` (for people; systemd adds the time) or `json`.
        node: name of the node, in every JSON line.
    """

    def __init__(
        self,
        format: str = "console",  # noqa: A002  the name of the setting
        node: str = "",
        verbose: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self._json, self._node, self._verbose = format == "json", node, verbose
        self._stream = stream or sys.stderr
        self.refusals: Counter[str] = Counter()
        self._last_logged_at: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def info(self, event: str, text: str, **fields: object) -> None:
        """Log a change that an operator would look for in last night's log."""
        self._write("info", event, text, fields)

    def warning(self, event: str, text: str, **fields: object) -> None:
        """Log a degraded state that heals by itself."""
        self._write("warning", event, text, fields)

    def error(self, event: str, text: str, **fields: object) -> None:
        """Log a state in which an operator must act."""
        self._write("error", event, text, fields)

    def debug(self, event: str, text: str, **fields: object) -> None:
        """Log a detail, only with `--verbose`."""
        if self._verbose:
            self._write("debug", event, text, fields)

    def refused(self, reason: str, remote: str) -> None:
        """Count a refusal. Log the first of each reason; those beyond `MAX_REASONS` count as `other`."""
        if reason not in self.refusals and len(self.refusals) >= MAX_REASONS:
            reason = "other"
        self.refusals[reason] += 1
        if self.refusals[reason] == 1:
            self.warning(
                "link.refused", f"refused {remote}: {reason} (further refusals are only counted)", reason=reason
            )

    def observed(self, observation: Observation) -> None:
        """Log an observation of core code: a named event, or a detail for `--verbose`."""
        level, event, text, fields = log_event_of(observation)
        if level == "debug":
            self.debug(event, text, **fields)
            return
        now = time.monotonic()
        if now - self._last_logged_at.get(event, -QUIET_SECONDS) < QUIET_SECONDS:
            self._left_out[event] += 1
            return
        self._last_logged_at[event] = now
        if suppressed := self._left_out.pop(event, 0):
            fields["suppressed"] = suppressed
        self._write(level, event, text, fields)

    def unhandled(self, context: Mapping[str, Any]) -> None:
        """Log an error that no code caught on the event loop: our bug. One line as JSON; for people with its trace."""
        error = context.get("exception")
        why = f" ({type(error).__name__}: {error})" if error is not None else ""
        text = f"internal error: {context.get('message', '')}{why}"
        trace = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
        self._write("error", "internal", text if self._json else f"{text}\n{trace}".rstrip(), {"trace": trace})

    def _write(self, level: str, event: str, text: str, fields: dict[str, object]) -> None:
        if self._json:
            line = json.dumps(
                {
                    "time": round(time.time(), 3),
                    "level": level,
                    "event": event,
                    "node": self._node,
                    "text": text.strip(),
                }
                | fields,
                default=str,
            )
        else:
            line = harmless_lines(text).replace("\n", "\n    ")  # no text of a peer or of users' code begins a line
            line = line if level == "info" else f"{level}: {line}"
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # standard error has no reader any more; the agent continues


class PrintedLines:
    """Last lines that each application's user code printed on this node, numbered so that a reader can continue."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[tuple[int, float, str]]] = {}
        self._number: Counter[str] = Counter()
        self._chars: Counter[str] = Counter()
        self._all_chars = 0

    def add(self, application: str, text: str) -> None:
        """Keep a line. The oldest is dropped when there are too many."""
        lines = self._lines.pop(application, None)
        if lines is None:
            lines = deque(maxlen=MAX_LOG_LINES)
            if len(self._lines) >= MAX_LOGGED_APPLICATIONS:
                self._forget(next(iter(self._lines)))
        self._lines[application] = lines
        self._number[application] += 1
        if len(lines) == MAX_LOG_LINES:
            self._drop_oldest(application)
        lines.append((self._number[application], time.time(), text))
        self._chars[application] += len(text)
        self._all_chars += len(text)
        while self._chars[application] > MAX_PRINTED_CHARS:
            self._drop_oldest(application)
        while self._all_chars > MAX_ALL_PRINTED_CHARS:
            self._forget(next(iter(self._lines)))

    def _drop_oldest(self, application: str) -> None:
        size = len(self._lines[application].popleft()[2])
        self._chars[application] -= size
        self._all_chars -= size

    def _forget(self, application: str) -> None:
        """Drop the lines of an application. Its numbers continue for a reader that returns."""
        del self._lines[application]
        self._all_chars -= self._chars.pop(application)

    def after(self, application: str, number: int, limit: int = 1_000) -> list[tuple[int, float, str]]:
        """Return at most `limit` lines with a greater number, as (number, wall seconds, text)."""
        selected: list[tuple[int, float, str]] = []
        free_chars = MAX_ANSWER_CHARS
        for line in self._lines.get(application, ()):
            if line[0] > number:
                free_chars -= len(line[2])
                if len(selected) >= limit or (selected and free_chars < 0):
                    break
                selected.append(line)
        return selected
