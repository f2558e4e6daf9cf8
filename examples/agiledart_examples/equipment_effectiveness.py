"""Manufacturing: machines report stops, production and temperatures; staff is informed. Source: [Hochreiner 2017] §5.1, table 1.

    agiledart run agiledart_examples.equipment_effectiveness:manufacturing

Nine operators, O1 to O9 of the paper. Overall equipment effectiveness is performance · availability · quality. The text recognition
of O1 is a wait. Each operator has the published duration as its service level.
"""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from agiledart import Context, KeyedOperator, ReadTime, Sink, Source, Topology, csv, plugin
from agiledart_examples.machines import CYCLE_S, HOT_CELSIUS

REPORT_EVERY = 300
"""Results that one report sums up."""

SERVICE_LEVELS_MS = {
    "parse": 1500, "filter-availability": 600, "performance": 750, "availability": 750, "quality": 750,
    "monitor-temperature": 600, "effectiveness": 700, "report": 1300, "inform": 500,
}  # fmt: skip
"""Step → published duration of an item: O1, O2, O3, O4, O5, O6, O7, O9, O8."""


class AvailabilityReading(NamedTuple):
    """Availability of a machine (S1)."""

    at_ms: int
    machine: str
    is_available: bool
    read_at: ReadTime


class ProductionReading(NamedTuple):
    """Image of a machine's production report (S2)."""

    at_ms: int
    machine: str
    image: str
    read_at: ReadTime


class TemperatureReading(NamedTuple):
    """Temperature of a machine (S3)."""

    at_ms: int
    machine: str
    celsius: float
    read_at: ReadTime


class ProductionReport(NamedTuple):
    """Figures of a machine in one reporting cycle.

    Attributes:
        ideal_ms: time that a piece should take.
        scheduled_down_s, unscheduled_down_s: stops in the cycle.
    """

    at_ms: int
    machine: str
    produced: int
    defective: int
    ideal_ms: int
    scheduled_down_s: int
    unscheduled_down_s: int
    read_at: ReadTime


class Factor(NamedTuple):
    """One of the three factors of the effectiveness of a machine in a cycle."""

    at_ms: int
    machine: str
    kind: str
    value: float
    read_at: ReadTime


class Effectiveness(NamedTuple):
    """Overall equipment effectiveness of a machine in a cycle."""

    at_ms: int
    machine: str
    value: float
    read_at: ReadTime


class Notice(NamedTuple):
    """Message to the staff."""

    at_ms: int
    subject: str
    text: str
    read_at: ReadTime


@dataclass
class OpenReport:
    """Results since the last report: their number and sum."""

    results: int = 0
    total: float = 0.0


class ReportEffectiveness(KeyedOperator[str, Effectiveness, OpenReport, Notice]):
    """Reports the mean of every 300 results (O9)."""

    def initial(self, key: str) -> OpenReport:
        """Begin an empty report."""
        return OpenReport()

    def on_record(self, key: str, record: Effectiveness, state: OpenReport, context: Context[Notice]) -> None:
        """Take a result; the last one of a report completes it."""
        state.results += 1
        state.total += record.value
        if state.results == REPORT_EVERY:
            text = f"effectiveness {state.total / REPORT_EVERY:.4f} of the last {REPORT_EVERY} results"
            context.emit(Notice(record.at_ms, "report", text, record.read_at))
            state.results, state.total = 0, 0.0


@dataclass
class OpenCycles:
    """Factors of cycles that are not complete: time → kind → value."""

    factors: dict[int, dict[str, float]] = field(default_factory=dict)


class CombineFactors(KeyedOperator[str, Factor, OpenCycles, Effectiveness]):
    """Multiplies the three factors of a cycle (O7)."""

    def initial(self, key: str) -> OpenCycles:
        """Begin without a factor."""
        return OpenCycles()

    def on_record(self, key: str, record: Factor, state: OpenCycles, context: Context[Effectiveness]) -> None:
        """Take a factor; the third one of a cycle completes it."""
        known = state.factors.setdefault(record.at_ms, {})
        known[record.kind] = record.value
        if len(known) == 3:
            del state.factors[record.at_ms]
            value = known["performance"] * known["availability"] * known["quality"]
            context.emit(Effectiveness(record.at_ms, key, round(value, 6), record.read_at))


def share(part: float, whole: float) -> float:
    """Return part / whole; 0 where the whole is 0."""
    return part / whole if whole else 0.0


def performance(report: ProductionReport) -> Factor:
    """Return produced pieces times their ideal time, as a share of the cycle (O3)."""
    value = share(report.produced * report.ideal_ms / 1000, CYCLE_S)
    return Factor(report.at_ms, report.machine, "performance", value, report.read_at)


def availability(report: ProductionReport) -> Factor:
    """Return the share of the cycle in which the machine ran (O4)."""
    running_s = CYCLE_S - report.scheduled_down_s - report.unscheduled_down_s
    return Factor(report.at_ms, report.machine, "availability", share(running_s, CYCLE_S), report.read_at)


def quality(report: ProductionReport) -> Factor:
    """Return the share of pieces without a defect (O5)."""
    value = share(report.produced - report.defective, report.produced)
    return Factor(report.at_ms, report.machine, "quality", value, report.read_at)


@dataclass(frozen=True)
class ParseImage:
    """Reads the figures of an image (O1); recognising them takes `work_ms`."""

    work_ms: int

    def __call__(self, reading: ProductionReading) -> ProductionReport:
        """Return the report in the image."""
        time.sleep(self.work_ms / 1000)
        produced, defective, ideal_ms, scheduled_s, unscheduled_s = (int(text) for text in reading.image.split(";")[:5])
        return ProductionReport(
            reading.at_ms, reading.machine, produced, defective, ideal_ms, scheduled_s, unscheduled_s, reading.read_at
        )


def stopped(reading: AvailabilityReading) -> bool:
    """Return whether the machine does not run (O2)."""
    return not reading.is_available


def too_hot(reading: TemperatureReading) -> bool:
    """Return whether the machine is too hot (O6)."""
    return reading.celsius > HOT_CELSIUS


def stop_notice(reading: AvailabilityReading) -> Notice:
    """Return the message about a stop."""
    return Notice(reading.at_ms, "stop", f"{reading.machine} does not run", reading.read_at)


def heat_notice(reading: TemperatureReading) -> Notice:
    """Return the message about a temperature."""
    return Notice(reading.at_ms, "heat", f"{reading.machine} has {reading.celsius:.1f} °C", reading.read_at)


def inform(notice: Notice) -> Notice:
    """Return a message as the staff reads it (O8)."""
    return notice._replace(text=f"{notice.subject}: {notice.text}")


def machine_of(factor: Factor) -> str:
    """Return the machine of a factor."""
    return factor.machine


def whole_plant(result: Effectiveness) -> str:
    """Return the one key of reports."""
    return "plant"


def manufacturing(
    availability_readings: Source[AvailabilityReading] = plugin("example", stream="machine-availability"),  # noqa: B008  a value
    production_readings: Source[ProductionReading] = plugin("example", stream="machine-production"),  # noqa: B008  as above
    temperature_readings: Source[TemperatureReading] = plugin("example", stream="machine-temperature"),  # noqa: B008  as above
    notices: Sink[Notice] = csv("notices.csv"),  # noqa: B008  as above
    work_ms: int = 5,
) -> Topology:
    """Build the manufacturing topology.

    Args:
        availability_readings, production_readings, temperature_readings: S1, S2 and S3 of the paper.
        notices: messages to the staff.
        work_ms: time for the text of one image.
    """
    topology = Topology("manufacturing")
    stops = topology.source(
        "availability-readings", availability_readings, rows=AvailabilityReading, event_time="at_ms"
    )
    images = topology.source("production-readings", production_readings, rows=ProductionReading, event_time="at_ms")
    heat = topology.source("temperature-readings", temperature_readings, rows=TemperatureReading, event_time="at_ms")
    reports = images.map(ParseImage(work_ms), "parse", returns=ProductionReport)
    factors = reports.map(performance, "performance").union(
        reports.map(availability, "availability"), reports.map(quality, "quality"), name="factors"
    )
    results = factors.key_by(machine_of).stateful("effectiveness", CombineFactors())
    messages = (
        results.key_by(whole_plant)
        .stateful("report", ReportEffectiveness())
        .union(
            stops.filter(stopped, "filter-availability").map(stop_notice, "stop-notice"),
            heat.filter(too_hot, "monitor-temperature").map(heat_notice, "heat-notice"),
            name="messages",
        )
    )
    messages.map(inform, "inform").sink("notices", notices)
    for step, slo_ms in SERVICE_LEVELS_MS.items():
        topology.expect(step, ms=work_ms if step == "parse" else None, slo=f"{slo_ms}ms")
    topology.expect("notices", slo="5s")
    return topology
