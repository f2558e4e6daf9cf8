"""`agiledart analytics list|run`: run PySpark jobs on sink logs."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agiledart_analytics.printable import printable
from agiledart_cli.interruptible import interruptible
from agiledart_cli.options import agent_options
from agiledart_cli.output import count, milliseconds, output_option, paint, print_json, print_message, print_table
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.protocol import latency_log_name

if TYPE_CHECKING:
    from agiledart_analytics.job_run import JobResult
    from agiledart_analytics.jobs import AnalyticsJob

MAX_ROWS_SHOWN = 20


@click.group(short_help="Run PySpark jobs on the results in sink logs.")
def analytics() -> None:
    """Run PySpark jobs on the results in sink logs. Needs the extra: pip install 'agiledart[spark]'.

    \b
    Example:
      agiledart analytics list
      agiledart analytics run busiest-routes
      agiledart analytics run latency frequent-routes
    """


@analytics.command("list", short_help="List the jobs.")
@output_option
def list_jobs(output: str) -> int:
    """List the jobs, and the sink that each reads."""
    from agiledart_analytics.jobs import JOBS

    if output == "json":
        print_json([{"name": job.name, "what": job.what, "sink": job.sink or None} for job in JOBS.values()])
    else:
        print_table(
            ["NAME", "SINK", "ANSWERS"], [[job.name, job.sink or "(of APP)", job.what] for job in JOBS.values()]
        )
    return 0


@analytics.command(short_help="Run one job on the present content of a log.")
@click.argument("name")
@click.argument("application", metavar="[APP]", required=False)
@click.option("--sink", help="Log to read. Default: that of the job.")
@click.option("--parquet", metavar="DIR", help="Read Parquet files instead of a log.")
@click.option(
    "--token-file", metavar="FILE", help="Token of a reader; without it the agent of this machine creates one."
)
@click.option("--bootstrap", metavar="HOST:PORT,…", help="Agents to ask. Default: the agents that the token names.")
@click.option("--master", metavar="URL", help="Spark's master, or sc://… of a Connect server. Default: this machine.")
@click.option(
    "--keep-spark", is_flag=True, help="Leave Spark running for the next command; agiledart spark stop ends it."
)
@click.option("--results", metavar="DIR", help="Also write the result as Parquet to DIR/NAME.")
@click.option(
    "--plot", "picture", metavar="FILE", help="Also draw the result, as .png, .svg or .pdf; needs the extra [plot]."
)
@agent_options
@output_option
def run(
    name: str,
    application: str | None,
    sink: str | None,
    parquet: str | None,
    token_file: str | None,
    bootstrap: str | None,
    master: str | None,
    keep_spark: bool,
    results: str | None,
    picture: str | None,
    agent: str | None,
    identity: str | None,
    output: str,
) -> int:
    """Run one job on the present content of a log, and print its result.

    \b
    Example:
      agiledart analytics run busiest-routes
      agiledart analytics run daily-areas --token-file reader.token --results out -o json
      agiledart analytics run revenue --parquet copied-trips --plot revenue.png
      agiledart analytics run latency frequent-routes

    The jobs about latency need the name of an application: they read the latencies that agents sampled at its sinks.
    """
    from agiledart_analytics.job_run import run_job
    from agiledart_analytics.jobs import find_job
    from agiledart_analytics.plotting import check_plot, plot

    job = find_job(name)
    if parquet and not Path(parquet).is_dir():
        raise ConfigurationError(f"--parquet {parquet} is not a folder.")
    if job.is_about_an_application and not (application or sink or parquet):
        raise ConfigurationError(f"Give the application:  agiledart analytics run {name} APP")
    if application and not job.is_about_an_application:
        raise ConfigurationError(f"{name} reads a log, not an application: omit {application}, or give --sink.")
    if picture:
        check_plot(picture)
    with _reader(job, application, sink, parquet, token_file, bootstrap, agent, identity) as (reader, sinks):
        from agiledart.spark import spark_session, starting_message

        print_message(starting_message(short=True, keep=keep_spark))
        began = time.monotonic()

        def ran() -> "JobResult":
            session = spark_session(f"agiledart {name}", master=master, short=True, keep=keep_spark)
            print_message(f"Spark started after {time.monotonic() - began:.1f} s; computing {name} …")
            try:
                return run_job(session, job, reader=reader, sinks=sinks, parquet=parquet or "", results=results or "")
            finally:
                session.stop()

        outcome = interruptible(ran)
        print_message(f"result after {time.monotonic() - began:.1f} s")
    if picture:
        plot(outcome, job, picture)
    if output == "json":
        rows = [dict(zip(outcome.columns, printable(row), strict=True)) for row in outcome.rows]
        print_json({"name": name, "rows": rows, "total": outcome.total, "files": outcome.files})
        return 0
    print_outcome(outcome.columns, outcome.rows)
    if outcome.total > MAX_ROWS_SHOWN:
        print_message(
            paint(f"{count(outcome.total - MAX_ROWS_SHOWN)} more rows; see them with -o json or --results DIR", None)
        )
    if outcome.files:
        print_message(f"Parquet: {outcome.files}")
    return 0


def print_outcome(columns: tuple[str, ...], rows: tuple[tuple[Any, ...], ...], most: int = MAX_ROWS_SHOWN) -> None:
    """Print the first rows of a result as a table; cents as dollars, milliseconds with their unit."""
    heads = [name.removesuffix("_cents").removesuffix("_ms").upper() for name in columns]
    numbers = [
        head
        for head, name in zip(heads, columns, strict=True)
        if name in ("rank", "trips", "samples", "version") or name.endswith(("_cents", "_ms"))
    ]
    shown = [[_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in rows[:most]]
    print_table(heads, shown, right=numbers)


def _cell(name: str, value: Any) -> str:
    if name.endswith("_cents"):
        return "" if value is None else f"${value / 100:,.2f}"
    if name.endswith("_ms") and isinstance(value, float):
        return milliseconds(value)
    return str(printable(value))


@contextlib.contextmanager
def _reader(
    job: "AnalyticsJob",
    application: str | None,
    sink: str | None,
    parquet: str | None,
    token_file: str | None,
    bootstrap: str | None,
    agent: str | None,
    identity: str | None,
) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield the options of the source and the logs to read. Without a token file the agent creates a token for this run, which
    permits one log, or all logs when there are several.
    """
    options = {"bootstrap": bootstrap} if bootstrap else {}
    first = sink or job.sink or latency_log_name(application or "", 0)
    if parquet:
        yield {}, []
    elif token_file or os.environ.get("AGILEDART_TOKEN"):
        if application and not sink:
            print_message(f"reading {first}, of the first sink; --sink names another")
        yield options | ({"tokenFile": str(Path(token_file).expanduser().absolute())} if token_file else {}), [first]
    else:
        from agiledart_cli.verb_connection import connect
        from agiledart_control.reader_token import write_reader_token

        with connect(agent, identity) as client, tempfile.TemporaryDirectory(prefix="agiledart-") as folder:
            sinks = _latency_logs(client, application) if application and not sink else [first]
            token = write_reader_token(client.ask, sinks[0] if len(sinks) == 1 else "", Path(folder) / "reader.token")
            yield {**options, "tokenFile": str(token)}, sinks


def _latency_logs(client: Any, application: str) -> list[str]:
    """Return the latency logs of an application, one for each sink. Raises `OperationFailed` when it has none."""
    from agiledart_node.wire.commands import Status

    logs = client.ask(Status(application)).get("latency_logs") or {}
    if not logs:
        raise OperationFailed(
            f"{application} has no latencies: the rows of its sinks have no read time. Give the row type a field of "
            "the type agiledart.ReadTime."
        )
    return list(logs.values())
