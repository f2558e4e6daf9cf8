"""Jobs of the experiment `scaling-timeline`: three jobs of four stages each, whose second stage waits for each row.

The experiment submits this file as a user's file; the jobs do not depend on the experiment. Rows of the slow stage leave by the
emulated uplink of its machine: a file in which the machine's instances record until when the uplink is busy.
"""

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from agiledart import Change, Ranking, Sink, Source, Topology

UPLINK = "TIMELINE_UPLINK"
"""Environment variable with the path of a machine's uplink file; without it no uplink is emulated."""

_UNTIL = struct.Struct("d")


class InputLine(NamedTuple):
    """One line of input: time in milliseconds, and words."""

    at: int
    text: str


class Word(NamedTuple):
    """Word of a line, with the time of the line."""

    at: int
    word: str


def uplink(seconds_each: float) -> Callable[[], None]:
    """Return a function that waits until a row has left by this machine's uplink, which all its instances share."""
    path = os.environ.get(UPLINK, "")

    def leave() -> None:
        if not path or not seconds_each:
            return
        with Path(path).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            now = time.monotonic()
            (until,) = _UNTIL.unpack(file.read(_UNTIL.size) or _UNTIL.pack(0.0))
            until = max(now, until) + seconds_each
            file.seek(0)
            file.write(_UNTIL.pack(until))
        time.sleep(until - now)

    return leave


def slowly(seconds_each: float, link_seconds_each: float) -> Callable[[InputLine], InputLine]:
    """Return a step that sleeps for each row, and then waits until the uplink has sent the row."""
    leave = uplink(link_seconds_each)

    def slow(line: InputLine) -> InputLine:
        time.sleep(seconds_each)
        leave()
        return line

    return slow


def remove_duplicates(
    lines: Source[InputLine], report: Sink[Word], name: str = "remove-duplicates", each: float = 0.01, link: float = 0.0
) -> Topology:
    """Build the job with the stages source, parse, distinct by key, and sink."""
    topology = Topology(name, delivery="exactly-once")
    slow = slowly(each, link)

    def parse(line: InputLine) -> Word:
        return Word(slow(line).at, line.text)

    rows = topology.source("lines", lines, event_time=lambda line: line.at)
    rows.map(parse, "parse").key_by(lambda word: word.word).distinct("distinct").sink("report", report)
    return topology


def word_count(
    lines: Source[InputLine],
    report: Sink[Change[str, int, Word]],
    name: str = "word-count",
    each: float = 0.01,
    link: float = 0.0,
) -> Topology:
    """Build the job with the stages source, split, count by word, and sink."""
    topology = Topology(name, delivery="exactly-once")
    slow = slowly(each, link)

    def split(line: InputLine) -> Iterable[Word]:
        at = slow(line).at
        return [Word(at, word) for word in line.text.split()]

    rows = topology.source("lines", lines, event_time=lambda line: line.at)
    rows.flat_map(split, "split").key_by(lambda word: word.word).running_count("counts").sink("report", report)
    return topology


def top_k(
    lines: Source[InputLine],
    report: Sink[Ranking[Word, str, int]],
    name: str = "top-k",
    each: float = 0.01,
    link: float = 0.0,
) -> Topology:
    """Build the job with the stages source, parse, count by key, and the ten most frequent, which also feeds the sink."""
    topology = Topology(name, delivery="exactly-once")
    slow = slowly(each, link)

    def parse(line: InputLine) -> Word:
        return Word(slow(line).at, line.text)

    rows = topology.source("lines", lines, event_time=lambda line: line.at)
    counts = rows.map(parse, "parse").key_by(lambda word: word.word).running_count("counts")
    counts.top("top", n=10).sink("report", report)
    return topology
