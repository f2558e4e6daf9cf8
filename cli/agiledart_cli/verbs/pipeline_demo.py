"""`agiledart pipeline demo`: trips flow into a log, Spark learns from it, and its models come back by a feed to a running topology.

The demo waits for states, not for times: a first model that flags trips, then a traffic jam, then a model learned in the jam that
flags trips. Learned and flagged stand side by side at the end.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_cli.output import count, duration, plural, print_message, print_table
from agiledart_cli.processes import end_process_group
from agiledart_cli.signals import deferred
from agiledart_cli.spark_presence import unavailable_reason
from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.control_client import ControlClient
from agiledart_control.polling import FINAL_STATES
from agiledart_control.submission import make_submission
from agiledart_examples.slow_trips import FEED, SLOW, SLOW_FACTOR, TIMED
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.randomness import RandomStream
from agiledart_node.wire.commands import CreateFeed, CreateToken, Status
from agiledart_sink_log.client import SinkLogClient, SinkLogError

BUILDER: Final = "agiledart_examples.slow_trips:slow_trips"
NAME: Final = "slow-trips"
ROUTES: Final = {
    "airport → centre": 1_500.0, "centre → airport": 1_620.0, "station → harbour": 540.0, "harbour → station": 560.0,
    "centre → hills": 900.0, "hills → centre": 840.0, "market → station": 300.0, "university → market": 420.0,
}  # fmt: skip
"""Route → its usual duration before the jam, seconds."""

JAMMED: Final = ("airport → centre", "centre → airport", "station → harbour")
JAM_FACTOR: Final = 1.8
SLOW_SHARE: Final = 0.03
"""Share of trips that take too long at any time."""

TRIPS_PER_SECOND: Final = 100
TICK_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 300.0
"""Longest time without news of Spark or of a slow trip."""

TOKEN_SECONDS: Final = 86_400


class TripWriter:
    """Appends trips to a file, as a device does, in a thread of its own.

    Attributes:
        jam_since_ms: wall time at which the jam began; 0: there is none.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self._file, self._random = path.open("a", buffering=1 << 16), RandomStream(seed, "trips")
        self._ends = threading.Event()
        self.written = 0
        self.jam_since_ms = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(TICK_SECONDS):
            for _ in range(int(TRIPS_PER_SECOND * TICK_SECONDS)):
                self._file.write(json.dumps(self._trip()) + "\n")
            self._file.flush()

    def _trip(self) -> dict[str, object]:
        route = self._random.choice(list(ROUTES))
        seconds = ROUTES[route] * (JAM_FACTOR if self.jam_since_ms and route in JAMMED else 1.0)
        seconds *= 0.9 + 0.2 * self._random.uniform()
        if self._random.uniform() < SLOW_SHARE:
            seconds *= 2.2
        self.written += 1
        return {"route": route, "seconds": round(seconds, 1)}

    def close(self) -> None:
        """End the thread and close the file."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        self._file.close()


class LogFollower:
    """Rows of a log, read as they come."""

    def __init__(self, client: SinkLogClient, name: str) -> None:
        self._client, self._name, self._offset = client, name, 0

    def new_rows(self) -> list[list[Any]]:
        """Return the rows that have come since the last call; none while the log does not exist."""
        try:
            answer = self._client.fetch(self._name, 0, self._offset)
        except SinkLogError:
            return []
        rows = [row for batch in answer.batches for row in msgspec.msgpack.decode(batch.body)]
        skip = self._offset - answer.batches[0].offset if answer.batches else 0
        self._offset = answer.next_offset
        return rows[skip:]


class PipelineDemo:
    """One run of the demo on a mesh.

    Args:
        window: seconds of trips that one model is learned from.
    """

    def __init__(self, mesh: Mesh, window: int, seed: int) -> None:
        self._mesh, self._window = mesh, window
        self._process: subprocess.Popen[str] | None = None
        self._last_line = "{}"
        self._trips_file = mesh.folder / "trips.jsonl"
        self._trips_file.touch()
        self._trips = TripWriter(self._trips_file, seed)
        self._models: dict[int, dict[str, tuple[float, int]]] = {}
        self._flagged: dict[int, Counter[str]] = {}

    def run(self) -> dict[str, Any]:
        """Run all phases and return the outcome as a document. Raises `OperationFailed`."""
        if reason := unavailable_reason():
            raise OperationFailed(f"The demo needs Spark: {reason}")
        began = time.monotonic()
        print_message(f"AgileDart: {plural(self._mesh.count, 'agent')} on this machine, no master")
        self._mesh.start()
        with self._mesh.client(0) as client:
            self._submit(client)
            self._start_spark(client)
            token = self._token(client, "reader", "")
            self._trips.start()
            address = str(self._mesh.agents[0].note["address"])
            with SinkLogClient([address], identity_from_token(token)[0], 2.0) as reader:
                self._follow(client, LogFollower(reader, FEED), LogFollower(reader, SLOW))
        return self._document(time.monotonic() - began)

    # ---- start

    def _submit(self, client: ControlClient) -> None:
        keeper = self._mesh.agents[-1]
        client.ask(CreateFeed(FEED, str(keeper.note["node_id"])))
        source, sink = self._mesh.agents[0], self._mesh.agents[-1]
        settings = {
            "trips": f"jsonl:{self._trips_file}?follow=1@{source.name}",
            "timed": f"log:{TIMED}@{sink.name}",
            "slow": f"log:{SLOW}@{sink.name}",
        }
        client.ask(make_submission(BUILDER, settings, {}))
        print_message(
            f"  {NAME} runs: all trips → log:{TIMED}, slow ones → log:{SLOW}; models ← feed:{FEED}@{keeper.name}"
        )

    def _start_spark(self, client: ControlClient) -> None:
        from agiledart.spark import starting_message

        folder = self._mesh.folder / "spark"
        folder.mkdir(mode=0o700)
        tokens = {}
        for role, scope in (("reader", f"sink:{TIMED}"), ("writer", f"feed:{FEED}")):
            path = folder / f"{role}.token"
            path.touch(mode=0o600)
            path.write_text(self._token(client, role, scope))
            tokens[role] = str(path)
        task = {
            "reader": {"sink": TIMED, "tokenFile": tokens["reader"]},
            "writer": {"feed": FEED, "tokenFile": tokens["writer"]},
            "folder": str(folder),
            "window": self._window,
            "trigger": max(2, self._window // 3),
        }
        with (folder / "stderr").open("w") as errors, deferred():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agiledart_pipelines.usual_durations", json.dumps(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        print_message(f"  {starting_message(short=True)}")

    @staticmethod
    def _token(client: ControlClient, role: str, scope: str) -> str:
        command = CreateToken(role=role, uses=1_000, expires=TOKEN_SECONDS, member_for=TOKEN_SECONDS, scope=scope)
        return str(client.ask(command)["token"])

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError):  # closed by another thread
            for line in process.stdout:
                self._last_line = line

    # ---- run

    def _follow(self, client: ControlClient, models: LogFollower, slow: LogFollower) -> None:
        """Follow feed and log until a model that was learned in the jam has flagged trips."""
        news_at = reported_at = time.monotonic()
        seen = self._last_line
        while not self._is_done():
            time.sleep(LOOK_SECONDS)
            self._check(client)
            new_models, new_slow = models.new_rows(), slow.new_rows()
            self._note(new_models, new_slow)
            now = time.monotonic()
            if new_models or new_slow or self._last_line != seen:
                news_at, seen = now, self._last_line
            if now - news_at > SILENT_SECONDS:
                raise OperationFailed(f"Nothing has happened for {SILENT_SECONDS:.0f} s: {self._state_text()}.")
            if self._flagged and not self._trips.jam_since_ms:
                self._trips.jam_since_ms = int(time.time() * 1_000)
                print_message(
                    f"  a jam begins: {', '.join(JAMMED)} take {JAM_FACTOR} times as long, and are flagged until Spark has "
                    f"learned it"
                )
            if now - reported_at > REPORT_SECONDS:
                reported_at = now
                print_message(f"  {self._state_text()}")

    def _note(self, models: list[list[Any]], slow: list[list[Any]]) -> None:
        for route, usual_seconds, trips, learned_until in models:
            self._models.setdefault(learned_until, {})[route] = (usual_seconds, trips)
        for route, _, _, learned_until, *_ in slow:
            self._flagged.setdefault(learned_until, Counter())[route] += 1

    def _is_done(self) -> bool:
        """Return whether a model whose whole window lies in the jam has flagged trips."""
        begins_ms = self._trips.jam_since_ms + self._window * 1_000
        return bool(self._trips.jam_since_ms) and any(until >= begins_ms for until in self._flagged)

    def _state_text(self) -> str:
        if not self._models:
            with contextlib.suppress(ValueError):
                at = json.loads(self._last_line).get("at", "starting")
                return f"{count(self._trips.written)} trips; Spark: {at}, no model yet"
        flagged = sum(sum(routes.values()) for routes in self._flagged.values())
        return f"{count(self._trips.written)} trips, {plural(len(self._models), 'model')}, {count(flagged)} slow trips flagged"

    def _check(self, client: ControlClient) -> None:
        """Raise `OperationFailed` when Spark or the topology has ended."""
        with contextlib.suppress(ValueError):
            if error := json.loads(self._last_line).get("error"):
                raise OperationFailed(f"Spark: {error}")
        assert self._process is not None
        if self._process.poll() is not None:
            errors = (self._mesh.folder / "spark" / "stderr").read_text("utf-8", "replace").strip().splitlines()
            raise OperationFailed(f"Spark ended with code {self._process.returncode}: {errors[-1] if errors else ''}")
        if (state := client.ask(Status(NAME))["state"]) in FINAL_STATES:
            raise OperationFailed(f"{NAME} is {state}")

    def _document(self, seconds: float) -> dict[str, Any]:
        jam = self._trips.jam_since_ms
        models = [
            {
                "learned_until_ms": until,
                "in_jam": until >= jam + self._window * 1_000,
                "routes": {
                    route: {
                        "usual_seconds": usual,
                        "trips": trips,
                        "flagged": self._flagged.get(until, Counter())[route],
                    }
                    for route, (usual, trips) in sorted(routes.items())
                },
            }
            for until, routes in sorted(self._models.items())
        ]
        return {
            "seconds": round(seconds, 1),
            "trips": self._trips.written,
            "window_seconds": self._window,
            "jam_since_ms": jam,
            "jammed": list(JAMMED),
            "models": models,
        }

    def close(self) -> None:
        """End the writer of trips, and Spark with all its processes."""
        self._trips.close()
        process, self._process = self._process, None
        if process is None:
            return
        end_process_group(process)


def print_outcome(document: dict[str, Any]) -> None:
    """Print what Spark learned before and in the jam, and what the edge flagged by it, side by side."""
    before = [model for model in document["models"] if not model["in_jam"]]
    inside = [model for model in document["models"] if model["in_jam"]]
    columns = ["route", "learned before", "flagged", "learned in the jam", "flagged "]
    rows = []
    for route in ROUTES:
        cells = [f"{route} (jammed)" if route in JAMMED else route]
        for models in (before[:1], inside[-1:]):
            learned = [model["routes"][route] for model in models if route in model["routes"]]
            cells += [f"{learned[0]['usual_seconds']:.0f} s" if learned else "–"]
            group = before if models and not models[0]["in_jam"] else inside
            flagged = sum(model["routes"].get(route, {}).get("flagged", 0) for model in group)
            cells += [count(flagged)]
        rows.append(cells)
    print_table(columns, rows, right=columns[1:])
    print_message(
        f"{count(document['trips'])} trips in {duration(document['seconds'])}; Spark learned "
        f"{plural(len(document['models']), 'model')}, each from {document['window_seconds']} s of trips. A trip is flagged above "
        f"{SLOW_FACTOR} times the usual time of its route in the newest model. {NAME} ran without a stop."
    )
