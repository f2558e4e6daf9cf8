"""`agiledart demo`: agents on this machine find each other and compute both queries of the DEBS 2015 Grand Challenge."""

import contextlib
import gzip
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import click

from agiledart_cli.demo.demo_plug import AFTER, CHECKPOINT_SECONDS, MIN_AGENTS, Plug
from agiledart_cli.demo.demo_report import FREQUENT, PROFITABLE, QUERIES, DemoResult, print_report
from agiledart_cli.demo.demo_spark import SparkStep, print_spark
from agiledart_cli.demo.demo_view import DemoView, Picture, Rates, last_result
from agiledart_cli.output import duration, output_option, plural, print_json, print_message
from agiledart_cli.processes import MemoryWatch
from agiledart_cli.signals import unwound_by_signals
from agiledart_cli.verbs.cluster import MAX_AGENTS, AgentProcess, Mesh
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import NoAgentError
from agiledart_control.polling import FINAL_STATES
from agiledart_control.submission import make_submission
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed
from agiledart_kernel.limits import MAX_PARALLELISM
from agiledart_node.wire.commands import Status, Stop

BUILDERS = {
    FREQUENT: "agiledart_examples.debs2015:frequent_routes",
    PROFITABLE: "agiledart_examples.debs2015:profitable_areas",
}

GENERATED_SPEED = 600.0
LOOK_SECONDS = 0.25
DRAIN_SECONDS = 30.0
"""Timeout of the applications' end after the stop command."""


@click.command(short_help="Five agents compute the busiest taxi routes, live.")
@click.option("--agents", type=click.IntRange(1, MAX_AGENTS), default=5, show_default=True, help="Number of agents.")
@click.option(
    "--executors", type=click.IntRange(1, 64), default=1, show_default=True, help="Worker processes of each agent."
)
@click.option(
    "--parallelism",
    type=click.IntRange(1, MAX_PARALLELISM),
    default=1,
    show_default=True,
    help="Instances of each step.",
)
@click.option(
    "--input", "input_file", metavar="FILE", help="Trips as in the challenge, plain or .gz. Default: generated."
)
@click.option("--speed", type=click.FloatRange(min=0, min_open=True), help="Multiple of real time. Default: 600 for generated "
              "trips, as fast as possible for --input.")  # fmt: skip
@click.option("--results", default="demo-results", show_default=True, metavar="DIR", help="Folder of the results.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the generated trips.")
@click.option("--duration", "seconds", type=click.FloatRange(min=1), default=60.0, show_default=True, metavar="SECONDS",
              help="How long generated trips flow.")  # fmt: skip
@click.option("--spark/--no-spark", "with_spark", default=True, show_default=True, help="Also read a log with Spark.")
@click.option(
    "--pull-the-plug", is_flag=True, help="Kill the agent of a step with state during the run; other agents take over."
)
@output_option
def demo(
    agents: int,
    executors: int,
    parallelism: int,
    input_file: str | None,
    speed: float | None,
    results: str,
    seed: int,
    seconds: float,
    with_spark: bool,
    pull_the_plug: bool,
    output: str,
) -> int:
    """Agents on this machine find each other and compute New York's busiest taxi routes and most profitable areas.

    \b
    Example:
      agiledart demo
      agiledart demo --agents 5 --input trips.csv.gz --results out -o json
      agiledart demo --agents 5 --executors 2 --parallelism 4 --input trips.csv.gz --speed 60
      agiledart demo --pull-the-plug

    Each query is submitted to another agent; sources, steps and sinks run on different ones. The results are
    DIR/frequent-routes.csv and DIR/profitable-areas.csv, the same files whatever the number of agents. Where Spark and
    Java are installed, a third topology keeps clean trips in a log, from which Spark computes the busiest routes of each
    15 minutes (DIR/spark). With --pull-the-plug both queries run without Spark, and one agent is
    killed with all its processes: its neighbours take over from their copies of its state. Ctrl-C stops everything at
    any moment; only the results remain.
    """
    began = time.monotonic()
    trips = source_text(input_file, speed, seed)
    folder = result_folder(results)
    source = input_file or f"generated trips, {speed or GENERATED_SPEED:g} × real time, seed {seed}"
    if pull_the_plug:
        check_plug(agents)
        parallelism = max(parallelism, agents)
    plug = Plug((seconds if input_file is None else 0.0) * AFTER, folder / f"{FREQUENT}.csv") if pull_the_plug else None
    spark = SparkStep() if with_spark and plug is None else None
    run = _Demo(DemoResult(agents, executors, parallelism, source, folder), trips, spark, plug)
    with unwound_by_signals(), mesh_of(agents, executors, apart=pull_the_plug) as mesh:
        run.compute(mesh, None if input_file else seconds)
    run.result.seconds["wall"] = time.monotonic() - began
    if output == "json":
        print_json(run.result.document())
    else:
        print_report(run.result)
        print_spark(run.result.spark)
    return 0


def source_text(input_file: str | None, speed: float | None, seed: int) -> str:
    """Return the connector of both sources, without its node. Raises `ConfigurationError` for an unreadable input."""
    if input_file is None:
        return f"taxi:?seed={seed}&speed={speed or GENERATED_SPEED:g}"
    from agiledart_dataflow.plan.connectors import connector

    path = Path(input_file).expanduser().absolute()
    check_input(path, input_file)
    return connector("csv", str(path), speed=speed).url()


def check_input(path: Path, shown_name: str) -> None:
    """Raise `ConfigurationError` when the input is missing, is a folder, or ends in .gz and is not a gzip file."""
    if path.is_dir():
        raise ConfigurationError(f"--input {shown_name} is a folder; give a file of trips.")
    if not path.exists():
        raise ConfigurationError(f"--input {shown_name} does not exist (looked for {path}).")
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                if not file.read(1) and path.stat().st_size == 0:
                    raise EOFError
        else:
            with path.open("rb") as file:
                file.read(1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ConfigurationError(
            f"--input {shown_name} ends in .gz but is not a gzip file (check it: gzip -t {shown_name})."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"--input {shown_name} cannot be read: {error.strerror}.") from None


def check_plug(agents: int) -> None:
    """Raise `ConfigurationError` when there are too few agents to kill one."""
    if agents < MIN_AGENTS:
        raise ConfigurationError(
            f"--pull-the-plug needs at least {MIN_AGENTS} agents:"
            " two for source and sink, one to kill, one that takes over."
        )


def mesh_of(agents: int, executors: int, *, apart: bool) -> Mesh:
    """Return the demo's mesh; with `apart` its applications take a checkpoint every two seconds."""
    environment = {"AGILEDART_AGENT__CHECKPOINT_INTERVAL": str(CHECKPOINT_SECONDS)} if apart else {}
    return Mesh(agents, executors, apart=apart, environment=environment)


def result_folder(results: str) -> Path:
    """Create the folder for the results, and remove results of an earlier demo."""
    folder = Path(results).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for query in QUERIES:
            (folder / f"{query}.csv").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--results {results} cannot be used: {error.strerror}.") from None
    return folder


class _Demo:
    """The run of one demo on a mesh."""

    def __init__(self, result: DemoResult, trips: str, spark: SparkStep | None, plug: Plug | None = None) -> None:
        self.result, self._trips, self._spark, self._plug = result, trips, spark, plug
        self._memory = MemoryWatch()
        self._clients: dict[str, ControlClient] = {}
        self._rates = Rates()

    def compute(self, mesh: Mesh, seconds: float | None) -> None:
        """Start the mesh, run both queries to their end (or for `seconds`), and record the figures."""
        began = time.monotonic()
        print_message(f"AgileDart: {plural(mesh.count, 'agent')} on this machine, no master")
        mesh.start()
        self.result.seconds["ring"] = time.monotonic() - began
        print_message(f"  ring of {mesh.count} formed in {duration(self.result.seconds['ring'])}")
        try:
            for number, query in enumerate(QUERIES):
                self._submit(mesh, number, query)
            if self._spark is not None:
                self.result.spark = self._spark.start(mesh, self._trips, self.result.results, self.result.executors)
            flowing = time.monotonic()
            self._flow(mesh, seconds)
            self.result.seconds["flow"] = time.monotonic() - flowing
            self.result.memory = self._memory.peaks()
            if self._spark is not None and not self.result.spark:
                self.result.spark = self._spark.finish(mesh, is_endless=seconds is not None)
        finally:
            if self._spark is not None:
                self._spark.close()
            if self._plug is not None:
                self._plug.close()
                self.result.plug = self._plug.cost
            for client in self._clients.values():
                client.close()

    def _submit(self, mesh: Mesh, number: int, query: str) -> None:
        """Submit a query to an agent; its source and sink run on two other agents, if there are enough."""
        agents = mesh.agents
        if self._plug is not None:
            number = 0  # the killed agent must not run a source or sink
        source, taker, sink = (agents[(number + turn) % len(agents)] for turn in (0, 1, 2))
        if self._plug is not None:
            taker = source
        command = make_submission(
            BUILDERS[query],
            {
                "trips": f"{self._trips}@{source.name}",
                "report": f"csv:{_quoted(self.result.results / f'{query}.csv')}@{sink.name}",
            },
            {"": self.result.parallelism},
            executors=self.result.executors,
        )
        client = self._clients[query] = ControlClient(taker.place())
        response = client.ask(command)
        self._measure(mesh)
        where = "  ".join(
            f"{stage}@{','.join(dict.fromkeys(nodes))}" for stage, nodes in response.get("placement", {}).items()
        )
        print_message(
            f"  {query:<17} → {taker.name}   running after {response.get('seconds_to_running', 0):.2f} s   {where}"
        )

    def _flow(self, mesh: Mesh, seconds: float | None) -> None:
        """Watch until both queries have ended; after `seconds` stop them."""
        began = time.monotonic()
        stop_at = None if seconds is None else began + seconds
        give_up_at: float | None = None
        print_message(f"Input: {self.result.source}   results: {self.result.results}   Ctrl-C stops everything")
        with DemoView() as view:
            while True:
                status = self._look(mesh)
                view.show(Picture(status, self._rates.stages, {q: last_result(self._file(q)) for q in QUERIES}))
                self.result.status = status
                if all(response["state"] in FINAL_STATES for response in status.values()):
                    break
                now = time.monotonic()
                if stop_at is not None and now >= stop_at:
                    stop_at, give_up_at = None, now + DRAIN_SECONDS
                    self._stop(mesh)
                if give_up_at is not None and now >= give_up_at:
                    raise OperationFailed(
                        f"The queries did not end within {DRAIN_SECONDS:.0f} s after the stop command."
                    )
                time.sleep(LOOK_SECONDS)

    def _stop(self, mesh: Mesh) -> None:
        """Send the stop command to both queries from threads, because the responses arrive only after their end."""

        def ask(query: str) -> None:
            with contextlib.suppress(AgileDartError), mesh.client(0) as client:
                client.ask(Stop(query))

        for query in QUERIES:
            threading.Thread(target=ask, args=(query,), daemon=True).start()

    def _look(self, mesh: Mesh) -> dict[str, Any]:
        """Return the status of both queries; raises `OperationFailed` when one has failed or an agent has ended."""
        self._check(mesh)
        try:
            status = {query: client.ask(Status(query)) for query, client in self._clients.items()}
        except NoAgentError as error:
            time.sleep(LOOK_SECONDS)  # a killed process closes its socket shortly before its end is visible
            self._check(mesh)
            raise OperationFailed(str(error)) from None
        for query, response in status.items():
            if response["state"] == "failed":
                raise OperationFailed(f"{query} failed: {response.get('reason', 'no reason given')}")
        self._measure(mesh)
        self._rates.look(time.monotonic(), status)
        if self._plug is not None:
            self._plug.look(mesh, status)
        return status

    def _check(self, mesh: Mesh) -> None:
        for agent in mesh.agents:
            if self._plug is None or agent is not self._plug.victim:
                _check(agent)

    def _measure(self, mesh: Mesh) -> None:
        self._memory.look({agent.name: agent.process.pid for agent in mesh.agents})

    def _file(self, query: str) -> Path:
        return self.result.results / f"{query}.csv"


def _check(agent: AgentProcess) -> None:
    if not agent.is_alive:
        raise OperationFailed(f"Agent {agent.name} {agent.ending()}; the end of its log:\n{agent.log_tail(5)}")


def _quoted(path: Path) -> str:
    from agiledart_dataflow.plan.connectors import Connector

    return Connector("csv", str(path)).url().partition(":")[2]
