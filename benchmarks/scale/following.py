"""The rate becomes four times what it was, and falls back: delay until instances are added and removed."""

import bisect
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.e2e.elastic import Elastic, Feeder, undisturbed
from tests.e2e.mesh import mesh, wait_for
from tests.ports import lasting_port

from benchmarks.scale.watching import Lateness, percentile

PAUSE_MS = 10
"""Wait of a step for each row, so one instance handles fewer than 100 rows per second."""

INTERVAL_SECONDS = 5.0
BOUND_MS = 1_000
FEW, TIMES = 50, 4


class _Sent:
    """Record of the time at which each line was sent, to the precision of the polls."""

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder
        self._counts, self._times = [0], [time.monotonic()]

    def due(self, lines: int) -> float | None:
        """Return when the line after so many was sent; None: not yet sent."""
        sent = self._feeder.sent
        if sent > self._counts[-1]:
            self._counts.append(sent)
            self._times.append(time.monotonic())
        if lines >= sent:
            return None
        return self._times[bisect.bisect_right(self._counts, lines)]


def following(rows: int, up_seconds: float, down_seconds: float) -> dict[str, Any]:
    """Return the figures of one run on agents of its own."""
    with tempfile.TemporaryDirectory(prefix="scale-") as name, mesh(3) as ring:
        folder = Path(name)
        expected = undisturbed(folder, rows).splitlines(keepends=True)
        port = lasting_port()
        job = Elastic(
            ring, folder, "elastic", "--parallelism", "sums=1..8",
            source=f"tcp:127.0.0.1:{port}?listen=1&overload=spool", pause_ms=PAUSE_MS,
        )  # fmt: skip
        feeder = Feeder(port, rows)
        feeder.start()
        late = Lateness(job.out, _Sent(feeder).due)
        try:
            job.cli("scale", job.name, "sums", "auto")
            feeder.rate = FEW
            wait_for(lambda: job.committed() >= 2, 60, "epochs are committed")
            time.sleep(4 * INTERVAL_SECONDS)
            before = job.instances()
            up = _step(job, feeder, late, FEW * TIMES, up_seconds)
            most = job.instances()
            down = _step(job, feeder, late, FEW, down_seconds, until=before)
            changes = job.changes()
            feeder.send_up_to(feeder.sent)
            wait_for(lambda: job.read() == feeder.sent, 120, "the source has read all")
            feeder.close()  # the end of its input
            over = job.until_over()
        finally:
            late.close()
            feeder.close()
        return {
            "rows_a_second": [FEW, FEW * TIMES, FEW],
            "instances": [before, most, down["instances"]],
            "up": up,
            "down": down,
            "changes": [
                {name: change[name] for name in ("from", "to", "state", "seconds", "pause_ms", "reason")}
                for change in changes
            ],
            "state": over["state"],
            "reason": over["reason"],
            "exact": job.out.read_text().splitlines(keepends=True) == expected[: feeder.sent],
            "load": [round(load, 1) for load in os.getloadavg()],
        }


def _step(
    job: Elastic, feeder: Feeder, late: Lateness, rate: float, seconds: float, until: int | None = None
) -> dict[str, Any]:
    """Change the rate; return the lateness by interval and the number of instances over time."""
    began, feeder.rate = time.monotonic(), rate
    came: list[tuple[float, int]] = []
    while time.monotonic() < began + seconds:
        count = job.instances()
        if count and (not came or came[-1][1] != count):
            came.append((round(time.monotonic() - began, 1), count))
        if until is not None and count == until:
            break
        time.sleep(0.5)
    spans = int((time.monotonic() - began) / INTERVAL_SECONDS)
    p99 = [
        percentile(late.between(began + INTERVAL_SECONDS * n, began + INTERVAL_SECONDS * (n + 1)), 0.99)
        for n in range(spans)
    ]
    beyond = [n + 1 for n, delay in enumerate(p99) if delay is not None and delay > BOUND_MS]
    return {
        "instances_by_second": came,
        "instances": came[-1][1] if came else None,
        "p99_ms_by_interval": p99,
        "intervals_until_within_bound": beyond[-1] if beyond else 0,
        "seconds": round(time.monotonic() - began, 1),
    }
