from typing import Annotated, Any, NamedTuple

from agiledart import Loose, Sink, Source, Topology, jsonl


class LooseValue(NamedTuple):
    n: Annotated[int, Loose]
    v: Annotated[float, Loose]


def values(source: Source[LooseValue], out: Sink[Any] = jsonl("out.jsonl")) -> Topology:
    topology = Topology("values")
    topology.source("values", source).sink("out", out)
    return topology
