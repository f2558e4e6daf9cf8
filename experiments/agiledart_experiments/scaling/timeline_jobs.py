"""Jobs of the experiment `scaling-timeline`: three jobs of four stages each, whose second stage waits for each row.

The experiment submits this file as a user's file; the jobs do not depend on the experiment. The slow stage may make rows wide, so
that they fill the uplink of its host, and then has hosts of its own.
"""

import time
from collections.abc import Iterable
from typing import NamedTuple

from agiledart import Change, Ranking, Sink, Source, Topology

HOME = "a1"
"""Host of the other steps, where the slow stage has hosts of its own."""


class InputLine(NamedTuple):
    """One line of input: time in milliseconds, and words."""

    at: int
    text: str


class Word(NamedTuple):
    """Word of a line, with the time of the line; its padding makes the row wide."""

    at: int
    word: str
    padding: str = ""


def place_apart(topology: Topology, slow: str, others: Iterable[str], workers: str) -> None:
    """Place the slow step on the hosts `workers`, names with commas, and the others on `HOME`; "": no rules."""
    if not workers:
        return
    topology.place(slow, on=workers.split(","))
    for step in others:
        topology.place(step, on=[HOME])


def remove_duplicates(
    lines: Source[InputLine],
    report: Sink[Word],
    name: str = "remove-duplicates",
    each: float = 0.01,
    width: int = 0,
    workers: str = "",
) -> Topology:
    """Build the job with the stages source, parse, distinct by key, and sink."""
    topology = Topology(name, delivery="exactly-once")
    padding = "." * width

    def parse(line: InputLine) -> Word:
        time.sleep(each)
        return Word(line.at, line.text, padding)

    rows = topology.source("lines", lines, event_time=lambda line: line.at)
    rows.map(parse, "parse").key_by(lambda word: word.word).distinct("distinct").sink("report", report)
    place_apart(topology, "parse", ("distinct",), workers)
    return topology


def word_count(
    lines: Source[InputLine],
    report: Sink[Change[str, int, Word]],
    name: str = "word-count",
    each: float = 0.01,
    width: int = 0,
    workers: str = "",
) -> Topology:
    """Build the job with the stages source, split, count by word, and sink."""
    topology = Topology(name, delivery="exactly-once")
    padding = "." * width

    def split(line: InputLine) -> Iterable[Word]:
        time.sleep(each)
        words = line.text.split()
        return [Word(line.at, word, padding[: width // len(words)]) for word in words]

    rows = topology.source("lines", lines, event_time=lambda line: line.at)
    rows.flat_map(split, "split").key_by(lambda word: word.word).running_count("counts").sink("report", report)
    place_apart(topology, "split", ("counts",), workers)
    return topology


def top_k(
    lines: Source[InputLine],
    report: Sink[Ranking[Word, str, int]],
    name: str = "top-k",
    each: float = 0.01,
    width: int = 0,
    workers: str = "",
) -> Topology:
    """Build the job with the stages source, parse, count by key, and the ten most frequent, which also feeds the sink."""
    topology = Topology(name, delivery="exactly-once")
    padding = "." * width

    def parse(line: InputLine) -> Word:
        time.sleep(each)
        return Word(line.at, line.text, padding)

    rows = topology.source("lines", lines, event_time=lambda line: line.at)
    counts = rows.map(parse, "parse").key_by(lambda word: word.word).running_count("counts")
    counts.top("top", n=10).sink("report", report)
    place_apart(topology, "parse", ("counts", "top"), workers)
    return topology
