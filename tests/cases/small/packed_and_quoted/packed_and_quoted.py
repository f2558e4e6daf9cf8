from typing import Any, NamedTuple

from agiledart import Sink, Source, Topology, csv, jsonl


class PackedNote(NamedTuple):
    id: int
    note: str | None


def notes(source: Source[PackedNote], out: Sink[Any] = csv("out.csv")) -> Topology:
    topology = Topology("notes")
    topology.source("notes", source).sink("out", out)
    return topology


def back(source: Source[PackedNote], out: Sink[Any] = jsonl("back.jsonl")) -> Topology:
    return notes(source, out)
