"""Spark part of the demo: a third topology writes clean trips into a log, Spark copies it live and reports at the end.

Spark runs in its own process group, which ends with the demo in any case. If Java or pyspark is missing, or Spark fails, the
demo continues and reports the reason.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from agiledart_analytics.live import FINISH
from agiledart_cli.output import count, print_message
from agiledart_cli.processes import end_process_group
from agiledart_cli.spark_presence import unavailable_reason
from agiledart_cli.verbs.analytics import print_outcome
from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.control_client import ControlClient
from agiledart_control.polling import FINAL_STATES
from agiledart_control.reader_token import write_reader_token
from agiledart_control.submission import make_submission
from agiledart_node.wire.commands import Status, Stop

NAME = "clean-trips"
BUILDER = "agiledart_examples.clean_trips:clean_trips"
JOB = "busiest-routes"
PARTITIONS = 4
TRIGGER_SECONDS = 1.0
END_SECONDS = 60.0
"""Timeout of the topology's end after the two queries; then it is stopped, with the same timeout for draining."""

SILENT_SECONDS = 180.0
"""Longest time without progress after which the demo gives Spark up; a slow machine may take longer while it progresses."""

_PROGRESS_SECONDS = 5.0
_LOOK_SECONDS = 0.25


class SparkStep:
    """One run of the Spark part: `start`, then `finish`; `close` in any case."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self, mesh: Mesh, trips: str, results: Path, executors: int) -> dict[str, Any]:
        """Submit the topology and start Spark on its log. Returns {} or {"skipped": reason}."""
        from agiledart.spark import starting_message

        if reason := unavailable_reason():
            print_message(f"  Spark is skipped: {reason}")
            return {"skipped": reason}
        source, sink = mesh.agents[2 % mesh.count], mesh.agents[4 % mesh.count]
        command = make_submission(
            BUILDER,
            {"trips": f"{trips}@{source.name}", "out": f"log:{NAME}?partitions={PARTITIONS}@{sink.name}"},
            {},
            executors=executors,
        )
        folder = mesh.folder / "spark"
        folder.mkdir(mode=0o700)
        with mesh.client(0) as client:
            client.ask(command)
            token = write_reader_token(client.ask, NAME, folder / "reader.token")
        task = {
            "reader": {"sink": NAME, "tokenFile": str(token), "bootstrap": _addresses(mesh)},
            "folder": str(folder),
            "seconds": TRIGGER_SECONDS,
            "job": JOB,
            "results": str(results / "spark"),
        }
        with (folder / "stderr").open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agiledart_analytics.live", json.dumps(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        print_message(f"  {NAME:<17} → log of {PARTITIONS} partitions@{sink.name}; {starting_message()}")
        return {}

    def finish(self, mesh: Mesh, *, is_endless: bool) -> dict[str, Any]:
        """Return Spark's result after all rows: the `spark` of the demo's JSON. Stops an endless input first."""
        process = self._process
        if process is None:
            return {}
        print_message("Spark reads the rest of the log …")
        with mesh.client(0) as client:
            _end(client, 0.0 if is_endless else END_SECONDS)
        assert process.stdin is not None
        assert process.stdout is not None
        lines = _SparkOutput(process.stdout)
        # Its stdin stays open until `close`: Spark treats the end of the pipe as the end of the demo.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{FINISH}\n")
            process.stdin.flush()
        if not lines.wait():
            return {"error": f"no progress for {SILENT_SECONDS:.0f} s ({lines.progress_text()})"}
        process.wait()
        try:
            document: dict[str, Any] = json.loads(lines.last)
        except ValueError:
            document = {"at": "start"}
        if "at" in document:
            return {"error": f"it ended with code {process.returncode} before its result. {self._output_tail(mesh)}"}
        return document

    def _output_tail(self, mesh: Mesh) -> str:
        try:
            lines = (mesh.folder / "spark" / "stderr").read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def close(self) -> None:
        """End Spark and all its processes."""
        process, self._process = self._process, None
        if process is None:
            return
        end_process_group(process)


class _SparkOutput:
    """Output of the Spark process: lines about its progress, and its result at the end."""

    def __init__(self, pipe: IO[str]) -> None:
        self.last = ""
        self._ended = threading.Event()
        threading.Thread(target=self._listen, args=(pipe,), daemon=True).start()

    def _listen(self, pipe: IO[str]) -> None:
        with contextlib.suppress(ValueError):  # closed by another thread
            for line in pipe:
                self.last = line
        self._ended.set()

    def wait(self) -> bool:
        """Wait for the end and print progress; returns False without progress for `SILENT_SECONDS`."""
        seen, since = self.last, time.monotonic()
        while not self._ended.wait(_PROGRESS_SECONDS):
            if self.last != seen:
                seen, since = self.last, time.monotonic()
                print_message(f"  Spark: {self.progress_text()}")
            elif time.monotonic() - since > SILENT_SECONDS:
                return False
        return True

    def progress_text(self) -> str:
        """Return the last progress as text."""
        try:
            line = json.loads(self.last)
            return f"{line['at']}, {count(line['read'])} rows read"
        except (ValueError, KeyError):
            return "starting"


def print_spark(document: dict[str, Any]) -> None:
    """Print Spark's part of the report on stdout: the routes of the last 15 minutes."""
    if "error" in document:
        print_message(f"Spark: {document['error']}")
    if "rows" not in document:
        return
    table = [tuple(row) for row in document.get("table", ())]
    if table:
        last = table[-1][0]
        print_outcome(tuple(document["columns"]), tuple(row for row in table if row[0] == last))
    print_message(
        f"Spark: {count(document['rows'])} trips read from the log {NAME} in {_batches(document['batches'])}"
        f" ({count(document['rows_per_second'])} rows/s); {document['job']}: {document.get('files', 'no rows')}"
    )


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{count(number)} batches"


def _addresses(mesh: Mesh) -> str:
    return ",".join(str(agent.note["address"]) for agent in mesh.agents[:3])


def _end(client: ControlClient, timeout_s: float) -> None:
    """Wait for the topology's end until the timeout, then drain and stop it."""
    give_up_at = time.monotonic() + timeout_s
    while client.ask(Status(NAME))["state"] not in FINAL_STATES:
        if time.monotonic() >= give_up_at:
            client.ask(Stop(NAME), timeout=END_SECONDS)
            return
        time.sleep(_LOOK_SECONDS)
