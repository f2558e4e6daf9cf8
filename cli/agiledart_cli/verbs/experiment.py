"""`agiledart experiment list|run|reduce|report`: repeat the measurements of the papers on this machine."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from agiledart_cli.output import BAD, GOOD, duration, output_option, paint, print_json, print_message, print_table


@click.group(short_help="Repeat the measurements of the papers on this machine.")
def experiment() -> None:
    """Repeat the measurements of the papers on this machine, in the simulator, with the code that the agents run.

    \b
    Example:
      agiledart experiment list
      agiledart experiment run hop-count
      agiledart experiment run hop-count --scale paper --seed 7 -o json --plot hops.png
    """


@experiment.command("list", short_help="List the experiments.")
@output_option
def list_experiments(output: str) -> int:
    """List the experiments, and where their figures were published."""
    from agiledart_experiments.registry import EXPERIMENTS

    if output == "json":
        print_json(
            [{"name": entry.name, "answers": entry.answers, "source": entry.source} for entry in EXPERIMENTS.values()]
        )
    else:
        print_table(
            ["NAME", "ANSWERS", "SOURCE"], [[entry.name, entry.answers, entry.source] for entry in EXPERIMENTS.values()]
        )
    return 0


@experiment.command(short_help="Run one experiment.")
@click.argument("name")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random choices.")
@click.option(
    "--scale",
    type=click.Choice(["small", "paper"]),
    default="small",
    show_default=True,
    help="small ends within half a minute; paper has the published sizes and takes minutes.",
)
@click.option(
    "--sizes",
    "--rates",
    "--failures",
    "sizes",
    metavar="N,N,…",
    default="",
    help="Only these values of the x axis, such as numbers of nodes, instead of those of the scale.",
)
@click.option(
    "--policy",
    metavar="NAME",
    default="",
    help="Only this scaling policy: secant, paper, ds2, or a policy of a package.",
)
@click.option("--fault", metavar="NAME", default="", help="Fault of the hosts: kill, power or executor.")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=None,
    help="Number of runs with the fault, or of pairs beside another engine, instead of that of the scale.",
)
@click.option(
    "--replica-nodes",
    type=click.IntRange(min=1),
    default=None,
    help="Number of replica nodes that fail together with a host: all combinations, one after the other.",
)
@click.option("--again", is_flag=True, help="The replica nodes fail while the state is being restored.")
@click.option("--app", "apps", metavar="NAME,NAME…", default="", help="Only these applications.")
@click.option("--beside", metavar="ENGINE", default="", help="Also run another engine, in turns: storm.")
@click.option("--real", is_flag=True, help="Measure agents of this machine, instead of the simulator or a model.")
@click.option("--code", metavar="M+K", default="", help="Only this erasure code: 1+2, 2+2 or 4+2.")
@click.option(
    "--plot", "picture", metavar="FILE", help="Also draw the results, as .png, .svg or .pdf; needs matplotlib."
)
@click.option(
    "--events", metavar="DIR", help="Also add the figures of this run to DIR as Parquet, for experiment reduce."
)
@output_option
def run(
    name: str,
    seed: int,
    scale: str,
    sizes: str,
    policy: str,
    fault: str,
    runs: int | None,
    replica_nodes: int | None,
    again: bool,
    code: str,
    apps: str,
    beside: str,
    real: bool,
    picture: str | None,
    events: str | None,
    output: str,
) -> int:
    """Run one experiment; print its figures beside the published ones, and the goals that they meet.

    The same seed gives the same figures. Exit code 1 when a goal is missed.

    \b
    Example:
      agiledart experiment run hop-count
      agiledart experiment run churn --scale paper -o json
      agiledart experiment run hop-count --scale paper --sizes 10000
      agiledart experiment run query-latency --app frequent-routes --rates 500,1000
      agiledart experiment run query-latency --beside storm --runs 8 --rates 500,2000
      agiledart experiment run deployment-latency --real --sizes 10,50
      agiledart experiment run dataflow-recovery --real --failures 1,2
      agiledart experiment run closed-loop --policy secant
      agiledart experiment run pull-the-plug --fault power --runs 5
      agiledart experiment run pull-the-plug --replica-nodes 2 --code 4+2 --again
    """
    from agiledart_experiments.plotting import check_plot, plot
    from agiledart_experiments.registry import find, run_experiment
    from agiledart_experiments.report import Settings

    chosen = find(name)
    if picture:
        check_plot(picture)
    settings = Settings(
        seed,
        scale,
        _numbers(sizes),
        policy,
        fault,
        runs or 0,
        replica_nodes or 0,
        again,
        code,
        print_message,
        tuple(name.strip() for name in apps.split(",") if name.strip()),
        beside,
        real,
    )
    with _last_work_of_process():
        report, document = run_experiment(chosen, settings)
    if events:
        from agiledart_experiments.figures_files import write_figures

        print_message(f"wrote {write_figures(Path(events), name, seed, report.rows)}")
    if picture:
        plot(chosen, report, picture)
    if output == "json":
        print_json(document)
    else:
        _print_report(document)
    return 0 if report.passed else 1


@experiment.command(short_help="Reduce many runs to means with confidence intervals, with Spark.")
@click.argument("name")
@click.argument("folders", nargs=-1, required=True, metavar="DIR…")
@click.option(
    "--plot", "picture", metavar="FILE", help="Also draw the means, as .png, .svg or .pdf; needs the extra [plot]."
)
@output_option
def reduce(name: str, folders: tuple[str, ...], picture: str | None, output: str) -> int:
    """Reduce the runs of an experiment that `run --events DIR` wrote: mean, 95 % confidence interval (±) and number of runs.

    \b
    Example:
      agiledart experiment run hop-count --seed 1 --events runs
      agiledart experiment run hop-count --seed 2 --events runs
      agiledart experiment reduce hop-count runs
    """
    from agiledart.spark import spark_session, starting_message
    from agiledart_cli.interruptible import interruptible
    from agiledart_experiments.figures_files import reduced
    from agiledart_experiments.plotting import check_plot, plot
    from agiledart_experiments.registry import find
    from agiledart_experiments.report import ExperimentReport

    chosen = find(name)
    if picture:
        check_plot(picture)
    print_message(starting_message(short=True))

    def work() -> list[dict[str, Any]]:
        session = spark_session("agiledart experiment reduce", short=True)
        try:
            return reduced(session, folders, chosen)
        finally:
            session.stop()

    lines = interruptible(work)
    if picture:
        plot(chosen, ExperimentReport({}, tuple(lines)), picture)
    if output == "json":
        print_json({"name": name, "results": lines})
        return 0
    heads = list(lines[0])
    print_table(heads, [[_figure(line[head]) for head in heads] for line in lines], right=heads)
    return 0


@experiment.command(short_help="Show how faithful stored results are to the papers, panel by panel.")
@click.argument("folders", nargs=-1, required=True, metavar="DIR…")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "html"]),
    default="table",
    show_default=True,
    help="How to print; html is one page with its charts.",
)
def report(folders: tuple[str, ...], output: str) -> int:
    """Show for each panel of the papers whether results in DIR compute it, on what, and beside which values.

    DIR has files that `experiment run -o json` printed. Of several results of an experiment, one of scale paper counts.

    \b
    Example:
      agiledart experiment run hop-count --scale paper -o json > results/hop-count.json
      agiledart experiment report results
      agiledart experiment report results -o html > fidelity.html
    """
    from agiledart_experiments.fidelity.fidelity_report import fidelity_of
    from agiledart_experiments.fidelity.html_page import html_page

    fidelity = fidelity_of(folders)
    if output == "json":
        print_json(fidelity.document())
    elif output == "html":
        click.echo(html_page(fidelity), nl=False)
    else:
        _print_fidelity(fidelity.document())
    return 0


def _print_fidelity(document: dict[str, Any]) -> None:
    colours = {"computed": GOOD, "partly": None, "missing": BAD}
    rows = [
        [
            entry["paper"],
            entry["panel"],
            paint(entry["state"], colours[entry["state"]]),
            entry["evidence"] or "",
            ", ".join(entry["comparisons"]),
            entry["shows"] + (f" ({entry['why']})" if entry["why"] else ""),
        ]
        for entry in document["panels"]
    ]
    print_table(["PAPER", "PANEL", "STATE", "ON", "BESIDE", "SHOWS"], rows)
    counts = document["counts"]
    print_message(
        f"{counts['computed']} of {counts['panels']} panels of AgileDART computed"
        f" ({counts['computed_on_other_inputs']} of them on inputs that are not the paper's), {counts['partly']} partly, "
        f"{counts['missing']} missing"
    )


def _figure(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else value


@contextmanager
def _last_work_of_process() -> Iterator[None]:
    """Disable the garbage collector for the last work of this process, whose memory ends with it.

    A simulated node has many reference cycles; collecting those of 2,000 nodes took 2 s of CPU.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _numbers(text: str) -> tuple[int, ...]:
    """Return `10,100` as numbers. Raises click.BadParameter."""
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise click.BadParameter(f"{text}: use numbers separated by commas, such as 1000,10000.") from None


def _print_report(document: dict[str, Any]) -> None:
    rows = document["results"]
    heads = list(dict.fromkeys(name for row in rows for name in row))
    print_table(heads, [["" if row.get(head) is None else row[head] for head in heads] for row in rows], right=heads)
    for note in document["notes"]:
        print_message(f"note: {note}")
    for goal in document["goals"]:
        met = goal["met"]
        print_message(f"{'met   ' if met else 'MISSED'} {goal['what']}", colour=GOOD if met else BAD)
    spent = duration(document["cpu_seconds"])
    print_message(
        paint(
            f"{spent} of CPU, {document['memory_mb']:.0f} MB; seed {document['seed']}, scale {document['scale']}", None
        )
    )
