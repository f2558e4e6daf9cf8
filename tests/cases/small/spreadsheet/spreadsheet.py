from datetime import datetime
from typing import Annotated, Any, NamedTuple

from agiledart import Alias, Format, Sink, Source, Topology, csv, jsonl


class Spreadsheet(NamedTuple):
    at: Annotated[datetime, Alias("Zeit"), Format("%d.%m.%Y %H:%M")]
    room: Annotated[str, Alias("Raum")]
    celsius: Annotated[float, Alias("Temperatur")]


KELLER = csv("keller.csv", delimiter=";", decimal=",", encoding="cp1252", skip=1, zone="Europe/Berlin")


def rooms(source: Source[Spreadsheet] = KELLER, out: Sink[Any] = jsonl("out.jsonl")) -> Topology:
    topology = Topology("rooms")
    topology.source("rooms", source, event_time="at").sink("out", out)
    return topology
