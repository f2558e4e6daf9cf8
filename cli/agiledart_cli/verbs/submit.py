"""`agiledart submit`: from a function in a file to an application on the mesh."""

import time
from pathlib import Path
from typing import Any

import click
import msgspec

from agiledart_cli.control_client import ControlClient, connect
from agiledart_cli.errors import FAILED, USAGE, CommandRefusedError
from agiledart_cli.options import (
    agent_options,
    not_empty,
    parallelism_by_step,
    parallelism_option,
    parse_parallelism,
    set_option,
)
from agiledart_cli.output import BAD, output_option, print_json, print_message
from agiledart_cli.targets import load_target
from agiledart_cli.verbs.application_view import FINAL_STATES, all_malformed, print_plan, print_status
from agiledart_cli.verbs.applications import STOP_SECONDS
from agiledart_dataflow.plan.delivery import DELIVERIES, Delivery
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.records.application import SPECIFICATION_CODEC
from agiledart_node.wire.commands import WAITING_FOR_CAPACITY, RequestedParallelism, Status, Stop, Submit

NEVER_MAY = ("verb", "role", "scope", "owner", "command")
"""Why who asks may not, also when what runs has ended."""

POLL_SECONDS = 0.3

SUBMIT_SECONDS = 1_900.0
"""Without a word from the agent, which gives up by itself before: it may wait for room."""


def make_submission(
    target: str,
    settings: dict[str, str],
    parallelism: dict[str, RequestedParallelism],
    *,
    name: str = "",
    executors: int = 0,
    dry_run: bool = False,
    paths: tuple[str, ...] = (),
    delivery: str = "",
) -> Submit:
    """The command that submits `FILE:NAME` with these settings; raises what the user has to read.

    Args:
        delivery: empty: as the topology says.

    The topology is built from the bundle, exactly as the nodes will: what fails there fails here first.
    """
    from agiledart_executor.user_code.user_builder import build, encode_bundle, load_bundle, make_bundle
    from agiledart_executor.user_code.user_files import file_there, refuse_overwriting
    from agiledart_kernel.codec import encode

    builder = load_target(target)
    here = build(builder, settings, Path.cwd())  # the user's own file names in the traceback, if there is one
    if here.local_only:
        example = f"--set {here.local_only[0]}=csv:FILE"
        raise ConfigurationError(
            f"{', '.join(here.local_only)} of {here.name} read or write objects of this process, which other nodes do"
            f" not have. Make them parameters and give files, for example {example}, or use agiledart run."
        )
    refuse_overwriting(here, file_there)
    bundle = make_bundle(builder, settings, application=name, paths=paths)
    topology = load_bundle(bundle)
    specification = topology.specification()
    chosen = parallelism_by_step(specification, parallelism)
    promise = delivery or topology.delivery
    return Submit(name, encode(specification), encode_bundle(bundle), chosen, executors, dry_run, promise)


def _paths(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """What `--paths` says; () when it is not given."""
    from agiledart_dataflow.plan.paths import MODES, paths_from

    if value is None:
        return ()
    try:
        return paths_from(value if value in MODES else [one.strip() for one in value.split(",")])
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(short_help="Run a topology on the mesh.")
@click.argument("target", metavar="FILE:NAME")
@set_option
@parallelism_option
@click.option("--name", default="", callback=not_empty, help="The application's name. Default: the topology's own.")
@click.option("--executors", type=click.IntRange(1, 64), default=None, help="Worker processes of each node to use.")
@click.option(
    "--paths",
    callback=_paths,
    metavar="WAYS",
    help="Which ways rows take between nodes: auto, warm, direct, or NODE[,NODE] that shall lead. Default: as the topology says.",
)
@click.option(
    "--delivery",
    type=click.Choice(DELIVERIES),
    default=None,
    help="What becomes of it when a node dies: exactly-once brings it back from what neighbours keep, at-least-once, too, but shows"
    " rows at once, so that some are seen again, at-most-once ends it. Default: as the topology says, else at-most-once.",
)
@click.option("--replace", is_flag=True, help="Drain the application of this name first, if one runs.")
@click.option("--dry-run", is_flag=True, help="Show what would run where, and whether it could; start nothing.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit 1 when it failed, or could read nothing.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up waiting after this time (it runs on).")
@agent_options
@output_option
def submit(
    target: str,
    settings: tuple[str, ...],
    parallelism: tuple[str, ...],
    name: str,
    executors: int | None,
    paths: tuple[str, ...],
    delivery: str | None,
    replace: bool,
    dry_run: bool,
    wait: bool,
    timeout: float | None,
    agent: str | None,
    identity: str | None,
    output: str,
) -> int:
    """Run a topology on the mesh.

    \b
    Example:
      agiledart submit taxi.py:frequent_routes --set trips=csv:trips.csv.gz
      agiledart submit taxi.py:frequent_routes --set trips=csv:/data/trips.csv.gz@pi2 --parallelism 4
      agiledart submit --dry-run taxi.py:frequent_routes
      agiledart submit --paths warm taxi.py:frequent_routes
      agiledart submit --delivery at-least-once taxi.py:frequent_routes     (survives nodes that die)
      agiledart submit --replace taxi.py:frequent_routes     (drains the one that runs)

    The function runs here and, from the same source files, on every node that hosts a part; the nodes refuse code that
    builds another graph there. @NODE says where a source or sink runs; without it that is the agent you ask.
    Paths are made absolute here; the file must exist on the node where its source runs.
    """
    from agiledart_executor.user_code.parameter import parse_settings

    command = make_submission(
        target,
        parse_settings(settings),
        parse_parallelism(parallelism),
        name=name,
        executors=executors or 0,
        dry_run=dry_run,
        paths=paths,
        delivery=delivery or "",
    )
    with connect(agent, identity) as client:
        if replace and not dry_run:
            _stop_previous(client, command)
        response = _started(client, command, wait=wait)
        if response is None:
            return FAILED
        if dry_run or not wait:
            print_json(response) if output == "json" else show_plan(response, command, asked=delivery)
            return 0 if all(row["is_good"] for row in response.get("checks", ())) else FAILED
        if output != "json":
            show_plan(response, command, asked=delivery)
        try:
            final = wait_for_end(client, response["name"], timeout)
        except KeyboardInterrupt:
            print_message(
                f"Not waiting any longer: {response['name']} runs on. Stop it: agiledart stop {response['name']}"
            )
            raise
    if output == "json":
        print_json(final)
    else:
        print_status(harmless_document(final))
    if final["state"] == "failed" or final["state"] not in FINAL_STATES:
        return FAILED
    if all_malformed(final.get("summary") or {}):
        print_message(
            f"Not one record could be read, all were malformed. The first of them: agiledart logs {response['name']}"
        )
        return FAILED
    return 0


def show_plan(response: Any, command: Submit, asked: str | None) -> None:
    """What runs where, and what becomes of it with one of these nodes where nobody has said what shall."""
    print_plan(harmless_document(response), dry_run=command.dry_run)
    used = dict.fromkeys(node for nodes in response["placement"].values() for node in nodes)
    if asked is None and not Delivery.named(command.delivery).is_saved and len(used) > 1:
        about = (
            f"agiledart explain recovery {name_of(command)}" if not command.dry_run else "agiledart explain recovery -h"
        )
        word = Delivery.AT_LEAST_ONCE
        click.echo(
            f" It ends when one of these nodes dies. To go on: submit it with --delivery {word}   About it: {about}"
        )


class _PendingCapacity(Exception):
    """It is not running yet, and will once there is room."""


def _started(client: ControlClient, command: Submit, *, wait: bool) -> Any:
    """The answer to a submission; None when it waits for room and nobody wants to wait with it."""

    def on_progress(text: str) -> None:
        print_message(f"  {text}")
        if f" {WAITING_FOR_CAPACITY}: " in text and not wait:
            raise _PendingCapacity

    try:
        return client.ask(command, on_progress=on_progress, timeout=SUBMIT_SECONDS)
    except _PendingCapacity:
        return None
    except KeyboardInterrupt:
        if not command.dry_run:
            name = name_of(command)
            print_message(
                f"{name} is being started and goes on. Look: agiledart status {name}   Stop it: agiledart stop {name}"
            )
        raise


def _stop_previous(client: ControlClient, command: Submit) -> None:
    """End what runs under the name of a submission, having let out what it has read; nothing when nothing does.

    It goes on when its successor could not run in any case, for a place that does not exist, code that does not load, or a log that
    is somebody else's. Room and what one of both only can have (a port) is not looked at: that becomes free.

    Raises:
        AnsweredNoError: so it is.
    """
    name = name_of(command)
    try:
        if client.ask(Status(name))["state"] in FINAL_STATES:
            return
    except CommandRefusedError:  # there is none
        return
    faults: list[str] = []
    try:
        on_progress = client.ask(msgspec.structs.replace(command, dry_run=True), timeout=SUBMIT_SECONDS)
        faults = [
            f"{row['node']}: {row['text']}" for row in on_progress["checks"] if not row["stage"] and not row["is_good"]
        ]
    except CommandRefusedError as error:
        if error.exit_code == USAGE or error.reason in NEVER_MAY:
            raise CommandRefusedError(
                f"{str(error).rstrip('.')}. {name} runs on, as it was.", error.exit_code
            ) from None
    if faults:
        raise CommandRefusedError(f"{'; '.join(faults)}. {name} runs on, as it was.", FAILED)
    _drain(client, name)


def _drain(client: ControlClient, name: str) -> None:
    print_message(f"  {name} runs: draining it first")
    try:
        client.ask(Stop(name), on_progress=lambda text: print_message(f"  {text}"), timeout=STOP_SECONDS)
    except CommandRefusedError:
        if client.ask(Status(name))["state"] not in FINAL_STATES:  # else it ended by itself meanwhile
            raise
    except KeyboardInterrupt:
        print_message(f"{name} is being drained and will stop; nothing new was submitted.")
        raise


def name_of(command: Submit) -> str:
    """Under which an application is to run."""
    return command.name or SPECIFICATION_CODEC.decode(command.specification).name


def wait_for_end(client: ControlClient, name: str, timeout: float | None) -> Any:
    """The status of an application when it has ended, or after `timeout` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        response = client.ask(Status(name))
        if response["state"] in FINAL_STATES:
            return response
        if deadline is not None and time.monotonic() >= deadline:
            print_message(f"{name} still is {response['state']}; not waiting any longer.", colour=BAD)
            return response
        time.sleep(POLL_SECONDS)
