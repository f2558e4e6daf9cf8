"""Experiment `overhead`: CPU, memory and traffic of agents beside the application that they run.

AgileDART, figure 18: the first query of DEBS 2015 runs, and the paper compares a device's power, processor, memory and network with
those of Storm's supervisor. Here the daemons are the agents, or ZooKeeper, Nimbus and the supervisor; the workers are the processes
that run the application. There is no power meter: the CPU time of daemons and workers stands for energy. Traffic is that of TCP
connections that were open at the end, TLS included; bytes of daemons are control traffic.
"""

import contextlib
import os
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agiledart_experiments.process_figures import cpu_seconds, pss_mb
from agiledart_experiments.queries.compared_application import APPLICATIONS, ComparedApplication
from agiledart_experiments.queries.query_engines import MeshEngine, QueryEngine, StormEngine
from agiledart_experiments.queries.timed_sender import TimedSender
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.socket_bytes import sample, sent_between
from agiledart_experiments.throwaway_mesh import throwaway_mesh
from agiledart_kernel.errors import ConfigurationError, OperationFailed

APPLICATION: Final = "frequent-routes"
AGENTS: Final = 3
RATE: Final = 500
WARM_S: Final = {"small": 3, "paper": 20}
SECONDS: Final = {"small": 10, "paper": 30}
SPARE_S: Final = 60
"""Seconds of input beyond those of the measurement."""

GIVE_UP_S: Final = 300.0
MOST_MB: Final = 98.23
"""Memory of the paper's node process."""

LESS_PUBLISHED: Final = {"memory": 0.422, "network": 0.417}
"""Shares by which the paper's node takes less than Storm's supervisor."""

CPU_MOST, CONTROL_MOST = 0.05, 0.05
_STORM: Final = "storm"


@dataclass(frozen=True, slots=True)
class MeasuredEngine:
    """An engine and the processes that serve it without running an application."""

    engine: QueryEngine
    daemons: tuple[int, ...]


def run(settings: Settings) -> ExperimentReport:
    """Run the application on each engine: return a row for each, idle and while it runs."""
    if settings.beside not in ("", _STORM):
        raise ConfigurationError(f"overhead runs beside storm, not beside {settings.beside}")
    application = APPLICATIONS[APPLICATION]
    rows: list[Row] = []
    with throwaway_mesh(AGENTS) as mesh:
        ours = MeasuredEngine(MeshEngine(mesh), tuple(mesh.processes))
        rows += _measured(ours, application, mesh.folder, settings)
    if settings.beside:
        rows += _beside(application, settings)
    parameters = {"application": APPLICATION, "agents": AGENTS, "rate": RATE, "seconds": SECONDS[settings.scale]}
    notes = (
        "daemon_pss_mb: mean of the daemons, a shared page counts in parts; daemons of Storm: ZooKeeper, Nimbus, supervisor",
        "energy_cpu_s: CPU time of daemons and workers while the application ran, a proxy of energy; no power was measured",
        "control_bytes_s: bytes that daemons sent, data_bytes_s: that workers sent, over connections open at the end",
        f"printed: {LESS_PUBLISHED['memory']:.1%} less memory and {LESS_PUBLISHED['network']:.1%} less traffic than Storm",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows), notes)


def _beside(application: ComparedApplication, settings: Settings) -> list[Row]:
    from agiledart_experiments.storm.storm_cluster import storm_cluster
    from agiledart_experiments.storm.storm_installation import storm_installation

    installation = storm_installation(settings.progress)
    settings.progress("Storm is started")
    with (
        tempfile.TemporaryDirectory(prefix="adx-") as name,
        storm_cluster(Path(name) / _STORM, installation) as cluster,
    ):
        storm = MeasuredEngine(StormEngine(cluster), tuple(cluster.roots))
        return _measured(storm, application, Path(name), settings)


def _measured(
    measured: MeasuredEngine, application: ComparedApplication, folder: Path, settings: Settings
) -> list[Row]:
    """Return the rows of an engine: idle, and while the application runs."""
    engine, seconds = measured.engine, SECONDS[settings.scale]
    settings.progress(f"{engine.name} is idle for {seconds} s")
    idle = _span(measured, seconds)
    lines = application.lines(settings.seed, RATE * (WARM_S[settings.scale] + seconds + SPARE_S))
    sender = TimedSender(lines, RATE)
    settings.progress(f"{engine.name} runs {application.name} for {seconds} s at {RATE} lines/s")
    try:
        engine.start(application, application.name, sender.port, folder / f"{engine.name}.csv", folder / "none")
        with sender.accept() as connection:
            threading.Thread(target=_send, args=(sender, connection), daemon=True).start()
            time.sleep(engine.workers_s + WARM_S[settings.scale])
            busy = _span(measured, seconds)
    finally:
        sender.close()
    return [{"engine": engine.name, "phase": "idle", **idle}, {"engine": engine.name, "phase": "running", **busy}]


def _send(sender: TimedSender, connection: socket.socket) -> None:
    """Send until the connection is closed; the input is longer than the measurement."""
    with contextlib.suppress(OperationFailed):
        sender.send(connection, GIVE_UP_S)


def _span(measured: MeasuredEngine, seconds: float) -> Row:
    """Measure for so many seconds."""
    daemons = list(measured.daemons)
    began, before = time.monotonic(), sample()
    daemon_cpu, workers_before = cpu_seconds(daemons), _workers(measured)
    worker_cpu = {worker: cpu_seconds([worker]) for worker in workers_before}
    time.sleep(seconds)
    workers = _workers(measured)
    after, took = sample(), time.monotonic() - began
    of_daemons = cpu_seconds(daemons) - daemon_cpu
    of_workers = sum(cpu_seconds([worker]) - worker_cpu.get(worker, 0.0) for worker in workers)
    control, data = sent_between(before, after, daemons) / took, sent_between(before, after, workers) / took
    return {
        "daemons": len(daemons),
        "workers": len(workers),
        "daemon_cpu_share": round(of_daemons / took / len(daemons), 4),
        "worker_cpu_share": round(of_workers / took, 4),
        "energy_cpu_s": round(of_daemons + of_workers, 2),
        "daemon_pss_mb": round(pss_mb(daemons) / len(daemons), 1),
        "worker_pss_mb": round(pss_mb(workers), 1),
        "control_bytes_s": round(control),
        "data_bytes_s": round(data),
        "control_share_of_data": round(control / data, 4) if data else None,
        "load": round(os.getloadavg()[0], 1),
    }


def _workers(measured: MeasuredEngine) -> list[int]:
    return [process for process in measured.engine.processes() if process not in measured.daemons]


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    ours = next(row for row in rows if row["engine"] == "agiledart" and row["phase"] == "running")
    share = ours["control_share_of_data"]
    return (
        Goal(f"an agent takes less than {MOST_MB} MB ({ours['daemon_pss_mb']} MB)", ours["daemon_pss_mb"] < MOST_MB),
        Goal(
            f"an agent takes less than 5 % of a core ({ours['daemon_cpu_share']:.1%})",
            ours["daemon_cpu_share"] < CPU_MOST,
        ),
        Goal("control traffic below 5 % of the data", share is not None and share < CONTROL_MOST),
    )
