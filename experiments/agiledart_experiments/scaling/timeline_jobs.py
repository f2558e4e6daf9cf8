"""The jobs of the experiment `scaling-timeline`: three of four stages each, whose second one waits for each of its rows.

They travel to the agents as a user's file and know nothing of the experiment. Rows of the slow stage leave by the uplink of its
machine, which is emulated: a file in which the instances of a machine keep until when it is taken.
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
"""The variable in which a machine has the file of its uplink; without it there is none."""

_UNTIL = struct.Struct("d")


class InputLine(NamedTuple):
    """One line of input: when, and words."""

    at: int
    text: str


class Word(NamedTuple):
    """A word of a line."""

    at: int
    word: str


def uplink(seconds_each: float) -> Callable[[], None]:
    """What waits until a row has left by the uplink of this machine, which all instances here share."""
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
    """A step that takes so long for each row, and then until the uplink has taken it."""
    leave = uplink(link_seconds_each)

    def slow(line: InputLine) -> InputLine:
        time.sleep(seconds_each)
        leave()
        return line

    return slow


def remove_duplicates(
    lines: Source[InputLine], report: Sink[Word], name: str = "remove-duplicates", each: float = 0.01, link: float = 0.0
) -> Topology:
    """Source, parse, distinct by key, sink."""
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
    """Source, split, count by word, sink."""
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
    """Source, parse, count by key, the ten most frequent; its sink is the fourth stage's."""
    topology = Topology(name, delivery="exactly-once")
    slow = slowly(each, link)

    def parse(line: InputLine) -> Word:
        return Word(slow(line).at, line.text)

    rows = topology.source("lines", lines, event_time=lambda line: line.at)
    counts = rows.map(parse, "parse").key_by(lambda word: word.word).running_count("counts")
    counts.top("top", n=10).sink("report", report)
    return topology
