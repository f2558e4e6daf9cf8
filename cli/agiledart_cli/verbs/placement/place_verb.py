"""`agiledart place`: compute where the operators of topologies should run on a network; no agent is needed."""

from pathlib import Path
from typing import Any

import click

from agiledart_cli.options import agent_options, set_option
from agiledart_cli.output import BAD, GOOD, WATCH, output_option, print_json, print_message, print_table
from agiledart_kernel.errors import ConfigurationError

LIVE = "live"
"""Word for the network of an agent."""


@click.group(invoke_without_command=True, short_help="Compute where operators should run, off line.")
@click.option(
    "--network",
    metavar="FILE|live",
    help="Network: JSON, measured round trips (.csv, .csv.gz, .parquet), or an agent's: live.",
)
@click.option(
    "--save-network", "saves", metavar="FILE", help="With --network live: write the network to this file, too."
)
@click.option(
    "--topology",
    "topologies",
    metavar="FILE|FILE.py:NAME|APP",
    multiple=True,
    help="Topology: JSON, a function in Python, or a running application; several share the nodes.",
)
@set_option
@click.option("--strategy", metavar="NAME|FILE.py:CLASS", default=None, help="Strategy; default: hybrid.")
@click.option("--compare", "compares", is_flag=True, help="Run several strategies and print one table.")
@click.option("--strategies", metavar="NAME,…", default="", help="With --compare: only these strategies.")
@click.option("--objective", metavar="NAME", default=None, help="Aim, such as response, usage, score, weighted.")
@click.option("--weights", metavar="METRIC=W,…", default="", help="Weights of the objective `weighted`; they sum to 1.")
@click.option("--ranges", metavar="METRIC=A:B,…", default="", help="Ranges that normalise weighted metrics.")
@click.option(
    "--formulation",
    type=click.Choice(["cuts", "plain", "standard"]),
    default="cuts",
    show_default=True,
    help="Rows of the integer programme of odp.",
)
@click.option("--start", metavar="FILE", default=None, help="Present placement: a result of -o json.")
@click.option("--time-limit", metavar="SECONDS", default=None, help="Limit of each strategy, such as 10s.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random choices.")
@click.option("--seeds", metavar="A-B|N,…", default="", help="With --compare: one run of each strategy for each seed.")
@click.option("--capacity", metavar="RESOURCE=N,…", default="", help="Capacity of every node of a file of round trips.")
@click.option("--exclusive", is_flag=True, help="Each topology gets nodes of its own.")
@click.option("--check", "checks", is_flag=True, help="Run the conformance suite on the strategy.")
@click.option("--plot", "picture", metavar="FILE", help="With --compare: draw the trade-offs; needs matplotlib.")
@click.option("--example", is_flag=True, help="Write network.json and topology.json here, to begin with.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print.",
)
@agent_options
@click.pass_context
def place(context: click.Context, /, **options: Any) -> int:
    """Compute where the operators of topologies should run on a network. Only --network live asks an agent.

    Exit code 0: a placement that breaks no constraint; 1: there is none, or this strategy found none; 2: a wrong file or option.

    \b
    Example:
      agiledart place --example
      agiledart place --network network.json --topology topology.json --strategy hybrid
      agiledart place --network network.json --topology topology.json --objective response --compare
      agiledart place --network network.json --topology topology.json --compare --seeds 1-20 -o csv
      agiledart place --network live --save-network mesh.json --topology frequent-routes --compare
      agiledart place --network mesh.json --topology taxi.py:frequent_routes --strategy hybrid
      agiledart place --strategy mine.py:Mine --check
    """
    if context.invoked_subcommand is not None:
        return 0
    if options["example"]:
        return _write_example()
    if options["checks"]:
        return _check(options["strategy"])
    if options["network"] is None or not options["topologies"]:
        raise click.UsageError("place needs --network FILE and --topology FILE; begin with: agiledart place --example")
    if options["compares"]:
        return _compare(options)
    return _place_once(options)


def _write_example() -> int:
    from agiledart.placement.example import EXAMPLE_NETWORK, EXAMPLE_TOPOLOGY
    from agiledart.placement.loading import save_document

    for name, document in (("network.json", EXAMPLE_NETWORK), ("topology.json", EXAMPLE_TOPOLOGY)):
        if Path(name).exists():
            raise ConfigurationError(f"{name}: it exists already; --example replaces no file.")
        save_document(name, document)
    print_message("Wrote network.json and topology.json. Next:")
    print_message("  agiledart place --network network.json --topology topology.json --objective response")
    return 0


def _network(options: dict[str, Any]) -> Any:
    from agiledart.placement.loading import load_network
    from agiledart_cli.verbs.placement.live_inputs import live_network
    from agiledart_cli.verbs.placement.option_values import amounts

    if options["network"] == LIVE:
        return live_network(options["agent"], options["identity"], options["saves"])
    if options["saves"]:
        raise click.UsageError("--save-network belongs to --network live.")
    return load_network(options["network"], amounts("--capacity", options["capacity"]))


def _topologies(text: str, options: dict[str, Any], network: Any) -> list[Any]:
    from agiledart.placement.loading import load_topologies
    from agiledart_cli.verbs.placement.live_inputs import built_topology, is_application, running_topology

    if ":" in text:
        return [built_topology(text, options["settings"], network)]
    if is_application(text):
        return [running_topology(text, options["agent"], options["identity"])]
    return load_topologies(text, options["network"])


def _request(options: dict[str, Any]) -> Any:
    from dataclasses import replace

    from agiledart.placement.loading import load_document
    from agiledart_placement.files.result_file import read_start
    from agiledart_placement.files.topology_file import joined_request
    from agiledart_placement.problem.problem import Problem

    network = _network(options)
    for note in network.notes:
        print_message(f"note: {note}", colour=WATCH)
    topologies = [topology for text in options["topologies"] for topology in _topologies(text, options, network)]
    request = joined_request(network, topologies, is_exclusive=options["exclusive"])
    if options["start"]:
        start = read_start(load_document(options["start"]), options["start"], network, Problem(request))
        request = replace(request, start=start)
    return request


def _options(options: dict[str, Any]) -> Any:
    from agiledart.placement.running import PlacementOptions
    from agiledart_cli.verbs.placement.option_values import objective, seconds

    return PlacementOptions(
        objective(options["objective"], options["weights"], options["ranges"]),
        seconds(options["time_limit"]),
        options["seed"],
        options["formulation"],
    )


def _place_once(options: dict[str, Any]) -> int:
    from agiledart.placement.running import place as place_with
    from agiledart_cli.verbs.placement.result_tables import print_result

    for name, value in (
        ("--strategies", options["strategies"]),
        ("--seeds", options["seeds"]),
        ("--plot", options["picture"]),
    ):
        if value:
            raise click.UsageError(f"{name} belongs to --compare.")
    result = place_with(_request(options), options["strategy"] or "hybrid", _options(options))
    if options["output"] == "json":
        print_json(result.document())
    else:
        print_result(result)
    return 0 if result.is_feasible else 1


def _compare(options: dict[str, Any]) -> int:
    from agiledart.placement.comparing import compare
    from agiledart_cli.verbs.placement.option_values import numbers
    from agiledart_cli.verbs.placement.result_tables import print_comparison, print_comparison_csv
    from agiledart_cli.verbs.placement.trade_offs import check_picture, draw

    if options["picture"]:
        check_picture(options["picture"])
    names = [name.strip() for name in options["strategies"].split(",") if name.strip()]
    names += [options["strategy"]] if options["strategy"] and options["strategy"] not in names else []
    seeds = numbers("--seeds", options["seeds"]) or (options["seed"],)
    comparison = compare(_request(options), names, _options(options), seeds, print_message)
    if options["picture"]:
        draw(comparison, options["picture"])
    if options["output"] == "json":
        print_json(comparison.document())
    elif options["output"] == "csv":
        print_comparison_csv(comparison)
    else:
        print_comparison(comparison)
    return 0 if any(result.is_feasible for result in comparison.results) else 1


def _check(strategy: str | None) -> int:
    from agiledart.placement.conformance import check_strategy

    if strategy is None:
        raise click.UsageError("--check needs --strategy NAME or FILE.py:CLASS.")
    is_right = True
    for finding in check_strategy(strategy):
        colour = GOOD if finding.passed else BAD if finding.passed is False else WATCH
        print_message(
            f"{finding.word:7} {finding.rule}{': ' + finding.detail if finding.detail else ''}", colour=colour
        )
        is_right &= finding.passed is not False
    return 0 if is_right else 1


@place.command(short_help="Convert files of other tools to those of `place`.")
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
def convert(source: str, target: str) -> int:
    """Convert a network or a topology to the files of `agiledart place`.

    IN is a network of the Topology Zoo (.graphml, .gml), of topohub or YAFS (network.json), measured round trips (.csv, .parquet),
    or an appDefinition.json of YAFS. Several applications are written to OUT with their names.

    \b
    Example:
      agiledart place convert Abilene.graphml abilene.json
      agiledart place convert appDefinition.json topology.json
    """
    from agiledart.placement.loading import load_document, load_network, load_topologies, save_document
    from agiledart_placement.files.network_file import network_document
    from agiledart_placement.files.topology_file import topology_document
    from agiledart_placement.files.yafs import is_yafs_applications

    if source.endswith(".json") and is_yafs_applications(load_document(source)):
        topologies = load_topologies(source)
        for topology in topologies:
            path = Path(target)
            named = path if len(topologies) == 1 else path.with_name(f"{path.stem}-{topology.name}{path.suffix}")
            save_document(named, topology_document(topology))
            print_message(f"Wrote {named}: {len(topology.stages)} operators, {len(topology.edges)} streams.")
        return 0
    network = load_network(source)
    for note in network.notes:
        print_message(f"note: {note}", colour=WATCH)
    save_document(target, network_document(network))
    print_message(f"Wrote {target}: {len(network.hosts)} nodes.")
    return 0


@place.command(short_help="List placement problems with known optima, or write one.")
@click.argument("name", required=False)
@output_option
def gallery(name: str | None, output: str) -> int:
    """List placement problems with their optima or bounds; with NAME, write its network and topology here.

    \b
    Example:
      agiledart place gallery
      agiledart place gallery tag-and-count
    """
    from dataclasses import asdict

    from agiledart.placement.gallery import GALLERY, gallery_problem
    from agiledart.placement.loading import save_document
    from agiledart_placement.files.network_file import network_document
    from agiledart_placement.files.topology_file import topology_document

    if name is None:
        entries = {key: {k: v for k, v in asdict(p).items() if k != "make"} for key, p in GALLERY.items()}
        if output == "json":
            print_json([{"name": key, **entry} for key, entry in entries.items()])
        else:
            heads = ["NAME", "OBJECTIVE", "BEST KNOWN", "BOUND", "HOW", "ABOUT"]
            rows = [
                [
                    key,
                    p.objective,
                    f"{p.value:.6g}",
                    "" if p.bound is None else f"{p.bound:.6g}",
                    f"{p.how}, {p.when}",
                    p.about,
                ]
                for key, p in GALLERY.items()
            ]
            print_table(heads, rows, right=heads[2:4])
        return 0
    problem = gallery_problem(name)
    network, topology = problem.make()
    files = f"{name}-network.json", f"{name}-topology.json"
    for file, document in zip(files, (network_document(network), topology_document(topology)), strict=True):
        if Path(file).exists():
            raise ConfigurationError(f"{file}: it exists already; gallery replaces no file.")
        save_document(file, document)
    proven = (
        "proven" if problem.value == problem.bound else f"bound {problem.bound:.6g}" if problem.bound else "no bound"
    )
    print_message(
        f"Wrote {files[0]} and {files[1]}. Best known {problem.objective}: {problem.value:.6g} ({proven}, {problem.how})."
    )
    print_message(
        f"  agiledart place --network {files[0]} --topology {files[1]} --objective {problem.objective} --compare"
    )
    return 0
