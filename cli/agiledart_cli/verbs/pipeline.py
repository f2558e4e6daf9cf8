"""`agiledart pipeline …`: a data pipeline on sink logs, with Spark's declarative pipelines."""

import contextlib
import re
import time
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from agiledart_cli.interruptible import interruptible, is_abandoned
from agiledart_cli.options import agent_options
from agiledart_cli.output import count, output_option, print_json, print_message, print_table
from agiledart_kernel.errors import ConfigurationError, OperationFailed

if TYPE_CHECKING:
    from agiledart_pipelines.project import PipelineProject
    from agiledart_pipelines.runner import PipelineRunner

T = TypeVar("T")
MEMBER_SECONDS = 365 * 86_400
"""Validity of the reader that `init` creates, seconds."""

MAX_PORT = 65_535

project_option = click.option(
    "--project", "folder", metavar="DIR", default=".", help="Folder of the project. Default: this one, or one above it."
)


@click.group(short_help="Keep tables up to date from sink logs, with Spark.")
def pipeline() -> None:
    """Keep tables up to date from sink logs, with Spark's declarative pipelines. Needs: pip install 'agiledart[pipeline]'.

    \b
    Example:
      agiledart pipeline init taxi --sink clean-trips
      cd taxi
      agiledart pipeline run
      agiledart pipeline status
    """


@pipeline.command(short_help="Make a project: tables of four kinds on a log.")
@click.argument("name")
@click.option(
    "--sink",
    default="clean-trips",
    show_default=True,
    help="Log, several with commas, or city-*.",
)
@click.option(
    "--template",
    type=click.Choice(["taxi", "plain"]),
    default="taxi",
    show_default=True,
    help="Tables of taxi trips, or plain ones.",
)
@click.option("--time-field", default="dropoff_at", show_default=True, help="Field of the rows with their event time.")
@click.option(
    "--token-file", metavar="FILE", help="Reader's token. Default: the agent of this machine admits a reader."
)
@agent_options
@output_option
def init(
    name: str,
    sink: str,
    template: str,
    time_field: str,
    token_file: str | None,
    agent: str | None,
    identity: str | None,
    output: str,
) -> int:
    """Make a project in the folder NAME: specification, transformations, and a reader's identity (mode 0600).

    \b
    Example:
      agiledart pipeline init taxi
      agiledart pipeline init rooms --sink temperatures --template plain --time-field measured_at
      agiledart pipeline init cities --sink york,porto --token-file reader.token
    """
    from agiledart_agent.identity.reader_identity import identity_from_token, write_identity
    from agiledart_pipelines.template import write_project

    folder = Path(name).absolute()
    access = 'identityFile = "reader.identity"'
    if token_file:
        text = f"@{Path(token_file).expanduser()}"
    else:
        text = _reader_token(agent, identity, sink)
    reader, addresses = identity_from_token(text)
    files = write_project(folder, sink, access, template, time_field)
    write_identity(folder / "reader.identity", reader, addresses)
    if output == "json":
        print_json({"project": str(folder), "files": [str(file) for file in files]})
        return 0
    print_message(f"made {folder}: {', '.join(str(file.relative_to(folder)) for file in files)}")
    print_message(f"next:  cd {name} && agiledart pipeline run")
    return 0


def _reader_token(agent: str | None, identity: str | None, sink: str) -> str:
    from agiledart_cli.verb_connection import connect
    from agiledart_node.wire.commands import CreateToken

    with connect(agent, identity) as client:
        names_one = not any(sign in sink for sign in ",*?[")
        scope = f"sink:{sink}" if names_one else ""  # a grant names one log, or all
        command = CreateToken(role="reader", uses=1, expires=3_600, member_for=MEMBER_SECONDS, scope=scope)
        return str(client.ask(command)["token"])


@pipeline.command(short_help="Update the tables once, or again and again.")
@click.option("--every", metavar="SPAN", help="Update again and again, such as every 30s; Ctrl-C ends it.")
@click.option(
    "--keep-spark", is_flag=True, help="Leave Spark running for the next update; agiledart spark stop ends it."
)
@click.option("--metrics", metavar="HOST:PORT", help="With --every: serve Prometheus metrics there.")
@project_option
@output_option
def run(every: str | None, metrics: str | None, keep_spark: bool, folder: str, output: str) -> int:
    """Read what is new in the logs and update all tables.

    With --every an update that fails after a complete one is reported, and the next one is tried in its turn.

    \b
    Example:
      agiledart pipeline run
      agiledart pipeline run --every 30s --metrics 127.0.0.1:9470
    """
    seconds = _span(every) if every else 0.0
    if metrics and not every:
        raise ConfigurationError("--metrics needs --every: a single update ends before anything could ask.")
    address = _metrics_address(metrics) if metrics else None

    def update(runner: "PipelineRunner") -> None:
        try:
            outcome = runner.update()
        except (ConfigurationError, OperationFailed) as error:
            # A file may be mended, and an agent started, while this goes on; the first update shows a project's own faults.
            if not seconds or runner.last_update is None or runner.has_lost_spark(error) or is_abandoned():
                raise
            print_message(f"not updated: {error}")
            return
        if output == "json":
            print_json(outcome.document())
        else:
            print_message(f"updated after {outcome.seconds:.1f} s")

    def work(runner: "PipelineRunner") -> None:
        if address:
            _serve_metrics(runner, *address)
        while True:
            began = time.monotonic()
            update(runner)
            if not seconds:
                return
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))

    _with_runner(folder, work, short=not every, keep=keep_spark)
    return 0


@pipeline.command(short_help="Compute tables from the beginning.")
@click.argument("tables", nargs=-1, metavar="[TABLE]…")
@click.option("--all", "is_all", is_flag=True, help="All tables.")
@project_option
@output_option
def refresh(tables: tuple[str, ...], is_all: bool, folder: str, output: str) -> int:
    """Compute tables from the beginning, with the streaming tables that read them. Rows that the logs no longer have are lost.

    \b
    Example:
      agiledart pipeline refresh silver
      agiledart pipeline refresh --all
    """
    if bool(tables) == is_all:
        raise ConfigurationError("Name the tables to compute from the beginning, or give --all.")
    outcome = _with_runner(folder, lambda runner: runner.update(tables, refresh_all=is_all), short=True)
    if output == "json":
        print_json(outcome.document())
    return 0


@pipeline.command(short_help="Read a day from the logs again, and replace it in all tables.")
@click.argument("day")
@project_option
@output_option
def backfill(day: str, folder: str, output: str) -> int:
    """Read the rows of DAY from the logs again and replace that day in all tables.

    \b
    Example:
      agiledart pipeline backfill 2013-01-07
    """
    from agiledart_pipelines.backfill import replace_day
    from agiledart_pipelines.logs import time_field_of

    wanted = _day(day)

    def work(runner: "PipelineRunner") -> int:
        runner.update()
        print_message(f"replacing {day} …")
        rows = replace_day(
            runner.session, runner.project, runner.definitions(), wanted, time_field_of(runner.project.root)
        )
        runner.update()
        return rows

    rows = _with_runner(folder, work, short=True)
    if output == "json":
        print_json({"day": day, "rows": rows})
    elif rows:
        print_message(f"replaced {day}: {count(rows)} rows from the logs")
    else:
        print_message(f"the logs and the tables have no rows of {day}")
    return 0


@pipeline.command(short_help="Show what the last update did.")
@project_option
@output_option
def status(folder: str, output: str) -> int:
    """Show what the last update did, without Spark.

    \b
    Example:
      agiledart pipeline status
    """
    from agiledart_pipelines.project import LAST_UPDATE, open_project

    project = open_project(Path(folder))
    document = project.read_document(LAST_UPDATE)
    if document is None:
        raise OperationFailed(f"{project.name} has not been updated yet:  agiledart pipeline run")
    if output == "json":
        print_json({"name": project.name, **document})
        return 0
    ended = datetime.fromtimestamp(document["ended_at"]).astimezone().isoformat(" ", "seconds")
    print_message(f"{project.name}: last update {ended}, {document['seconds']:.1f} s")
    rows = [
        [table, update["state"], "" if update["rows"] is None else count(update["rows"]), f"{update['seconds']:.1f} s"]
        for table, update in document["tables"].items()
    ]
    print_table(["TABLE", "STATE", "ROWS READ", "AFTER"], rows, right=["ROWS READ", "AFTER"])
    for key, lag in sorted(document["lags"].items()):
        if lag["rows"]:
            print_message(
                f"  {key}: {count(lag['rows'])} rows not read, the oldest stored {lag['seconds']:.0f} s before the update"
            )
    for log, since in sorted(document.get("missing", {}).items()):
        moment = datetime.fromtimestamp(since).astimezone().isoformat(" ", "seconds")
        print_message(f"  {log}: does not answer since {moment}; its rows are read once it is back")
    for table, reasons in document["quarantined"].items():
        for reason, number in sorted(reasons.items()):
            print_message(f"  {table}: {count(number)} rows fail {reason!r}")
    return 0


@pipeline.command(short_help="Write a table as clean Parquet files for other tools.")
@click.argument("table")
@click.argument("target", metavar="DIR")
@project_option
@output_option
def export(table: str, target: str, folder: str, output: str) -> int:
    """Write a table as Parquet files to DIR. Other tools should read these: the folder of a table also holds files that do not
    count.

    \b
    Example:
      agiledart pipeline export silver ./silver-for-pandas
    """
    place = Path(target).absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ConfigurationError(f"{target} is no empty folder. Name a new one.")

    def work(runner: "PipelineRunner") -> int:
        with contextlib.suppress(FileNotFoundError):
            place.rmdir()  # Spark writes only where nothing is
        runner.export(table, str(place))
        return 0

    _with_runner(folder, work, short=True, task=f"writing {table}")
    if output == "json":
        print_json({"table": table, "folder": str(place)})
    else:
        print_message(f"wrote {place}")
    return 0


@pipeline.command(short_help="Train a model on a table, and write it as plain data.")
@click.argument("name")
@click.option("--held-out", metavar="DAY", help="Day on which the model is judged. Default: the last one.")
@click.option("--write", "file", metavar="FILE", help="File of the model. Default: NAME.json in the project.")
@project_option
@output_option
def train(name: str, held_out: str | None, file: str | None, folder: str, output: str) -> int:
    """Train the model of models/NAME.toml on all days but one, judge it on that day, and write it as JSON.

    A node scores it without Spark, Java or pickle: agiledart.scoring.read_model(text).score(values).

    \b
    Example:
      agiledart pipeline train durations
      agiledart pipeline train tips --held-out 2013-01-09 --write tips.json
    """
    from agiledart_pipelines.project import open_project
    from agiledart_pipelines.training import read_specification, train

    project = open_project(Path(folder))
    specification = read_specification(project.root, name)
    day = _day(held_out) if held_out else None
    target = Path(file).absolute() if file else project.root / f"{name}.json"
    if target.is_dir() or not target.parent.is_dir():
        raise ConfigurationError(f"--write {file}: name a file in a folder that exists.")
    trained = _with_runner(
        folder,
        lambda runner: train(runner.table(specification.table), specification, day),
        short=True,
        task=f"training {name}",
    )
    target.write_text(trained.model.text() + "\n")
    document = {
        "name": name,
        "version": trained.model.version,
        "file": str(target),
        "rows": trained.rows,
        "held_out": trained.held_out,
        "held_out_rows": trained.held_out_rows,
        "error": trained.error,
        "error_of_mean": trained.error_of_mean,
    }
    if output == "json":
        print_json(document)
        return 0
    print_message(f"{name} {trained.model.version}: trained on {count(trained.rows)} rows")
    print_message(
        f"on {trained.held_out} ({count(trained.held_out_rows)} rows) its error is {trained.error:.1f}, "
        f"that of the mean {trained.error_of_mean:.1f}"
    )
    print_message(f"wrote {target}")
    return 0


@pipeline.command(short_help="Spark learns usual durations; a running topology flags trips that take longer.")
@click.option("--agents", type=click.IntRange(1, 9), default=2, show_default=True, help="Number of agents.")
@click.option(
    "--window",
    type=click.IntRange(5, 600),
    default=15,
    show_default=True,
    help="Seconds of trips that a model is learned from.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the generated trips.")
@output_option
def demo(agents: int, window: int, seed: int, output: str) -> int:
    """Two minutes: Spark learns the routes' usual durations from a log and sends each model back by a feed; a running topology
    flags trips that take too long. In the middle a traffic jam begins, and the next model replaces the last without a stop.

    \b
    Example:
      agiledart pipeline demo
      agiledart pipeline demo --agents 3 --window 20 -o json

    Everything runs in a temporary folder, which is removed at the end. Ctrl-C stops it at any moment.
    """
    from agiledart_cli.signals import unwound_by_signals
    from agiledart_cli.verbs.cluster import Mesh
    from agiledart_cli.verbs.pipeline_demo import PipelineDemo, print_outcome

    with unwound_by_signals(), Mesh(agents, 1) as mesh, contextlib.closing(PipelineDemo(mesh, window, seed)) as run:
        outcome = run.run()
    if output == "json":
        print_json(outcome)
    else:
        print_outcome(outcome)
    return 0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{text} is no day such as 2013-01-07.") from None


def _with_runner(
    folder: str, work: "Callable[[PipelineRunner], T]", *, short: bool, keep: bool = False, task: str = ""
) -> T:
    """Return the result of work on a project, under its lock and in a session of its own, or on the Spark that was kept for it.

    Args:
        task: work that the command announces; "": an update.
    """
    from agiledart.spark import starting_message
    from agiledart_pipelines.project import open_project
    from agiledart_pipelines.session import has_kept_spark

    project = open_project(Path(folder))

    def done() -> T:
        from agiledart_pipelines.runner import PipelineRunner
        from agiledart_pipelines.session import open_session

        with project.file_errors(), project.locked(), open_session(project, short=short, keep=keep) as session:
            doing = task or f"updating {project.name}"
            print_message(f"Spark started after {time.monotonic() - began:.1f} s; {doing} …")
            with contextlib.closing(PipelineRunner(session, project, print_message, time.time)) as runner:
                return work(runner)

    with project.file_errors():
        _need_packages(project)
    print_message(starting_message(short=short, keep=keep or has_kept_spark(project)))
    began = time.monotonic()
    return interruptible(done)


def _need_packages(project: "PipelineProject") -> None:
    """Check what a start of Spark needs, before it takes seconds."""
    import importlib.util

    missing = [name for name in ("pyspark", "pyarrow", "pandas", "grpc") if importlib.util.find_spec(name) is None]
    if missing:
        raise OperationFailed(f"Pipelines need {', '.join(missing)}. Install:  pip install 'agiledart[pipeline]'")
    project.state.mkdir(parents=True, exist_ok=True)


def _metrics_address(text: str) -> tuple[str, int]:
    """Return host and port. Raises `ConfigurationError`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > MAX_PORT:
        raise ConfigurationError(f"--metrics {text} is not HOST:PORT.")
    return host or "127.0.0.1", int(port)


def _serve_metrics(runner: "PipelineRunner", host: str, port: int) -> None:
    from agiledart_pipelines.pipeline_metrics import serve_metrics

    try:
        serve_metrics(runner, host, port)
    except OSError as error:
        raise OperationFailed(f"--metrics {host}:{port}: {error.strerror or error}. Give another port.") from None
    print_message(f"metrics: http://{host}:{port}/metrics")


def _span(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text.strip())
    if match is None or not float(match[1]):
        raise ConfigurationError(f"--every {text} is no span such as 30s or 5m.")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3_600}[match[2] or "s"]
