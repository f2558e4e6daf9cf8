"""The twelve fields of a line as our engine's users type them: one module, which travels with every job that imports it."""

from typing import NamedTuple


class EngineTrip(NamedTuple):
    """A line. `ts` is its time in milliseconds; in J3 the moment at which it should leave its source, in nanoseconds."""

    ts: int
    medallion: str
    license: str
    zone: int
    vehicle: int
    pickup: str
    dropoff: str
    lon: float
    lat: float
    dist: float
    fare: float
    tip: float
