"""Audit trail of one agent: requester, action, origin, and whether it was permitted.

It records signed commands (what changes something) and all refusals. It does not record permitted queries: `top` asks
every second. Permitted and refused actions are two chains, so refused attempts can never push out what was done. Of one
key's refused attempts at most a few a second are written; the others are counted in its next line.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from pathlib import Path
from typing import Final

import msgspec

from agiledart_agent.audit.hash_chain import ChainReading, HashChain
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_kernel.machine import Completed, Event
from agiledart_node.wire.audit_messages import AuditFilter, AuditLine, AuditLines, ReadAudit

FOLDER: Final = "audit"
ALLOWED: Final = "allowed"
REFUSED: Final = "refused"

SYNC_SECONDS: Final = 1.0
"""Longest time of lines that a power cut may take away. A killed process loses none."""

REFUSED_AT_ONCE: Final = 500
REFUSED_PER_SECOND: Final = 5.0
"""Lines about refused attempts of one key: enough for a person who tries by hand or by mistake, and 130 MB a day for a
flash card.
"""

MAX_KEYS: Final = 256
"""Keys whose refused attempts are limited one by one."""

MAX_ANSWER_BYTES: Final = 256 << 10
MAX_FAULTS: Final = 16
"""Sentences about one chain; more alterations than that are evident anyway."""


class _RateLimit:
    """Rate limit of one key: how many more lines it may have."""

    def __init__(self, now: float) -> None:
        self.left, self.at, self.suppressed = float(REFUSED_AT_ONCE), now, 0

    def allows(self, now: float) -> bool:
        self.left = min(REFUSED_AT_ONCE, self.left + (now - self.at) * REFUSED_PER_SECOND)
        self.at = now
        if self.left < 1:
            self.suppressed += 1
            return False
        self.left -= 1
        return True


class AuditTrail:
    """Audit trail that one agent keeps.

    Args:
        feed: takes the answers to `ReadAudit`.
    """

    def __init__(self, state_dir: Path, log: AgentLog, feed: Callable[[Event], None]) -> None:
        self._log, self._feed = log, feed
        self._chains = {name: HashChain(state_dir / FOLDER, name) for name in (ALLOWED, REFUSED)}
        self._number = self._lost = 0
        self._rate_limits: dict[str, _RateLimit] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_syncing = self._is_open = False

    def open(self) -> None:
        """Continue where the last process ended. Raises OSError, OperationFailed."""
        for chain in self._chains.values():
            chain.open()
        self._is_open = True
        self._number = max(self._last_number(chain) for chain in self._chains.values())

    def _last_number(self, chain: HashChain) -> int:
        newest: deque[bytes] = deque((line.text for line in chain.reading().lines()), maxlen=1)
        line = _kept(newest[0]) if newest else None
        return max(chain.head.number, line.number if line is not None else 0)

    async def close(self) -> None:
        """Force the last lines to the disk; do nothing when the trail was never opened."""
        if not self._is_open:
            return
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sync(0.0)
        for chain in self._chains.values():
            chain.close()

    # ---- writing

    def note(self, line: AuditLine) -> None:
        """Store a line under the next number, with this time. A full disk loses the line; that is logged once and counted."""
        suppressed = 0
        if not line.allowed:
            rate_limit = self._rate_limit(line.key)
            if not rate_limit.allows(time.monotonic()):
                return
            suppressed, rate_limit.suppressed = rate_limit.suppressed, 0
        at_ms = int(time.time() * 1_000)
        numbered_line = msgspec.structs.replace(line, number=self._number + 1, at_ms=at_ms, suppressed=suppressed)
        try:
            self._chains[ALLOWED if line.allowed else REFUSED].append(
                msgspec.json.encode(numbered_line), numbered_line.number
            )
        except OSError as error:
            self._lost += 1
            if self._lost == 1:
                self._log.warning(
                    "audit.line_lost", f"the disk did not take a line of the audit: {error.strerror or error}"
                )
            return
        self._number = numbered_line.number
        if not self._is_syncing:
            self._is_syncing = True
            task = asyncio.ensure_future(self._sync(SYNC_SECONDS))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _rate_limit(self, key: str) -> _RateLimit:
        rate_limit = self._rate_limits.pop(key, None) or _RateLimit(time.monotonic())
        self._rate_limits[key] = rate_limit
        if len(self._rate_limits) > MAX_KEYS:
            del self._rate_limits[next(iter(self._rate_limits))]
        return rate_limit

    async def _sync(self, after: float) -> None:
        try:
            await asyncio.sleep(after)
            self._is_syncing = False
            for work in [chain.syncing() for chain in self._chains.values()]:
                await asyncio.to_thread(work.run)
        except OSError as error:
            self._log.warning(
                "audit.sync_failed", f"the audit could not be forced to the disk: {error.strerror or error}"
            )

    # ---- reading

    def read(self, effect: ReadAudit) -> None:
        """Answer another agent, or this one."""
        task = asyncio.ensure_future(self._read(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, effect: ReadAudit) -> None:
        try:
            readings = {name: chain.reading() for name, chain in self._chains.items()}
            answer = await asyncio.to_thread(_answer, effect, readings)
        except OSError as error:
            answer = AuditLines(0, faults=(f"the audit cannot be read: {error.strerror or error}",))
        if self._lost and effect.ask.verify:
            answer = msgspec.structs.replace(
                answer, faults=(*answer.faults, f"{self._lost:,} lines were lost: the disk did not take them")
            )
        self._feed(Completed(effect.request, answer))


def _answer(effect: ReadAudit, readings: dict[str, ChainReading]) -> AuditLines:
    """Return the requested lines. It runs in a thread: the files have eight megabytes each."""
    ask = effect.ask
    faults: dict[str, list[str]] = {name: [] for name in readings}
    lines: list[AuditLine] = []
    free_bytes, line_count, has_more = MAX_ANSWER_BYTES, 0, False
    for line in merge(*(_lines(name, reading, faults[name]) for name, reading in readings.items()), key=_number):
        line_count += 1
        if line.number <= ask.after or not _is_wanted(line, ask.wanted) or has_more:
            continue
        size = 128 + len(line.details) + len(line.outcome)
        if len(lines) >= ask.limit or size > free_bytes:
            has_more = True
            if not ask.verify:
                break
            continue
        free_bytes -= size
        lines.append(line)
    for name, reading in readings.items():
        if not (has_more and not ask.verify) and not reading.is_whole:
            faults[name].append(f"lines of the {name} commands are missing: the last ones, or a whole file")
    fault_texts = tuple(text for texts in faults.values() for text in texts)
    return AuditLines(
        0,
        tuple(lines),
        lines[-1].number if lines else ask.after,
        has_more,
        line_count if ask.verify else 0,
        fault_texts if ask.verify else (),
        {name: reading.head.last for name, reading in readings.items()},
    )


def _lines(name: str, reading: ChainReading, faults: list[str]) -> Iterator[AuditLine]:
    """Yield the lines that can be read. An unreadable line is a fault, like an altered one."""
    before = 0
    for text, is_whole in reading.lines():
        line = _kept(text)
        if not is_whole and len(faults) < MAX_FAULTS:
            which = f"line {line.number}" if line is not None else f"the text after line {before}"
            faults.append(f"{which} of the {name} commands was altered, or lines before it were removed")
        if line is not None:
            before = line.number
            yield line


def _kept(text: bytes) -> AuditLine | None:
    try:
        return msgspec.json.decode(text, type=AuditLine)
    except msgspec.MsgspecError:
        return None


def _number(line: AuditLine) -> int:
    return line.number


def _is_wanted(line: AuditLine, wanted: AuditFilter) -> bool:
    return (
        line.at_ms >= wanted.since_ms
        and (not wanted.application or line.application == wanted.application)
        and (
            not wanted.requester or line.key.startswith(wanted.requester) or line.requester.startswith(wanted.requester)
        )
    )
