"""`agiledart submit`: run the topology of a function in a file as an application on the mesh."""

from typing import Any

import click
import msgspec

from agiledart_cli.builder_names import BUILDER
from agiledart_cli.errors import FAILED, USAGE
from agiledart_cli.options import (
    agent_options,
    not_empty,
    parallelism_option,
    parse_parallelism,
    set_option,
)
from agiledart_cli.output import BAD, output_option, print_json, print_message
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.application_view import all_malformed, print_plan, print_status
from agiledart_cli.verbs.applications import STOP_SECONDS
from agiledart_cli.verbs.silent_inputs import waiting_input_texts
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError
from agiledart_control.polling import FINAL_STATES, wait_for_end
from agiledart_control.submission import SUBMIT_SECONDS, make_submission, name_of
from agiledart_dataflow.plan.delivery import DELIVERIES, Delivery
from agiledart_kernel.text import harmless_document
from agiledart_node.context.config import MOVES
from agiledart_node.records.application import SPECIFICATION_CODEC
from agiledart_node.wire.commands import WAITING_FOR_CAPACITY, Status, Stop, Submit

NEVER_MAY = ("verb", "role", "scope", "owner", "command")
"""Reasons of refusals that remain after the running application has ended."""


def _paths(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Return the value of `--paths`; () when it is absent."""
    from agiledart_dataflow.plan.paths import MODES, paths_from

    if value is None:
        return ()
    try:
        return paths_from(value if value in MODES else [node.strip() for node in value.split(",")])
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(short_help="Run a topology on the mesh.")
@click.argument("target", metavar="FILE:NAME", type=BUILDER)
@set_option
@parallelism_option
@click.option("--name", default="", callback=not_empty, help="The application's name. Default: the topology's own.")
@click.option("--executors", type=click.IntRange(1, 64), default=None, help="Worker processes of each node to use.")
@click.option(
    "--paths",
    callback=_paths,
    metavar="PATHS",
    help="Routes of rows between nodes: auto, warm, direct, or relays NODE[,NODE]. Default: those of the topology.",
)
@click.option(
    "--delivery",
    type=click.Choice(DELIVERIES),
    default=None,
    help="Behaviour when a node dies: survive restores the application from neighbours and saves little; exactly-once shows each"
    " row once, when it is committed; at-least-once shows rows at once and some twice; at-most-once saves nothing and ends it."
    " Default: that of the topology, else survive.",
)
@click.option(
    "--moves",
    type=click.Choice(MOVES),
    default=None,
    help="Whether its stages move to better nodes by themselves: off, advise (explain placement names moves), on, or mopa"
    " (its hosts ask for moves). Default: the agents' setting.",
)
@click.option(
    "--placement",
    metavar="STRATEGY[:OBJECTIVE]",
    default=None,
    help="Strategy that chooses the nodes, such as odp:response, hybrid or mopa. It goes before the topology's own and the agents'"
    " setting; see agiledart place.",
)
@click.option("--replace", is_flag=True, help="First drain the running application of this name.")
@click.option(
    "--upgrade",
    is_flag=True,
    help="Replace the running application of this name; this version continues with its state, by the names of its steps.",
)
@click.option(
    "--drop",
    "drops",
    multiple=True,
    metavar="STEP",
    help="With --upgrade: omit the state of this step; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Check and show the placement; start nothing.")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait for the end of the application; exit 1 if it failed or all records were malformed.",
)
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="Stop waiting after this time; the application keeps running."
)
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
    moves: str | None,
    placement: str | None,
    replace: bool,
    upgrade: bool,
    drops: tuple[str, ...],
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
      agiledart submit --paths warm --placement odp:response taxi.py:frequent_routes
      agiledart submit --delivery exactly-once taxi.py:frequent_routes     (each result once)
      agiledart submit --replace taxi.py:frequent_routes     (drains the running one first)
      agiledart submit --upgrade taxi.py:frequent_routes     (keeps the state of the running one)

    The function runs here and, from the same source files, on every node that hosts a part; the nodes refuse code that
    builds another graph there. @NODE sets the node of a source or sink; the default is the asked agent.
    This command makes paths absolute; the file must exist on the node of its source.

    --upgrade matches steps by name, as `checkpoint restore` does: sources continue at their positions, steps with their state, new
    steps start empty and are named. A step that is missing or has changed needs --drop STEP; otherwise, and when the new version
    cannot run, the running one stays as it is. Whatever is killed, one version runs afterwards. The state before the upgrade is
    retained until the next one. The application must be saved (exactly-once or at-least-once).
    """
    from agiledart_executor.user_code.parameter import parse_settings

    _check_options(upgrade=upgrade, replace=replace, drops=drops)
    command = make_submission(
        target,
        parse_settings(settings),
        parse_parallelism(parallelism),
        name=name,
        executors=executors or 0,
        dry_run=dry_run,
        paths=paths,
        delivery=delivery or "",
        moves=moves or "",
        notify=print_message,
        placement=placement or "",
    )
    with connect(agent, identity) as client:
        if replace and not dry_run:
            _stop_previous(client, command)
        upgraded = _upgraded(client, command, drops, identity or "", quiet=output == "json") if upgrade else None
        response = _started(client, command, wait=wait) if upgraded is None else upgraded
        if upgraded is not None and not wait:
            print_json(response) if output == "json" else print_status(harmless_document(response))
            return 0
        if response is None:
            return FAILED
        if dry_run or not wait:
            print_json(response) if output == "json" else show_plan(response, command, asked=delivery)
            return 0 if all(row["is_good"] for row in response.get("checks", ())) else FAILED
        if output != "json" and upgraded is None:
            show_plan(response, command, asked=delivery)
        try:
            final = wait_for_end(client.ask, response["name"], timeout)
        except KeyboardInterrupt:
            print_message(
                f"Not waiting any longer: {response['name']} keeps running. Stop it: agiledart stop {response['name']}"
            )
            raise
    return _show_end(final, response["name"], output)


def _check_options(*, upgrade: bool, replace: bool, drops: tuple[str, ...]) -> None:
    """Raise `UsageError` for options that exclude each other."""
    if upgrade and replace:
        raise click.UsageError("--upgrade keeps the state, --replace drains it: give only one of them.")
    if drops and not upgrade:
        raise click.UsageError("--drop belongs to --upgrade.")


def _show_end(final: dict[str, Any], name: str, output: str) -> int:
    """Print the final state of an application, or that it runs on; return the exit code."""
    if final["state"] not in FINAL_STATES:
        print_message(f"{name} is still {final['state']}; not waiting any longer.", colour=BAD)
    if output == "json":
        print_json(final)
    else:
        print_status(harmless_document(final))
    if final["state"] == "failed" or final["state"] not in FINAL_STATES:
        return FAILED
    if all_malformed(final.get("summary") or {}):
        print_message(f"All records were malformed. The first of them: agiledart logs {name}")
        return FAILED
    return 0


def show_plan(response: Any, command: Submit, asked: str | None) -> None:
    """Show the placement, and what happens when one of its nodes dies, unless the user asked for a delivery without state."""
    print_plan(harmless_document(response), dry_run=command.dry_run)
    if command.dry_run:
        for text in waiting_input_texts(SPECIFICATION_CODEC.decode(command.specification)):
            click.echo(f" {text}")
    for text in plan_notes(response["placement"], command, asked):
        click.echo(f" {text}")


def plan_notes(placement: dict[str, list[str]], command: Submit, asked: str | None) -> list[str]:
    """Return sentences on what happens when a node of the application dies."""
    name = name_of(command)
    about = "agiledart explain recovery -h" if command.dry_run else f"agiledart explain recovery {name}"
    delivery = Delivery.named(command.delivery)
    if not delivery.is_saved:
        used = dict.fromkeys(node for nodes in placement.values() for node in nodes)
        ends = (
            "It ends when one of these nodes dies, because its delivery is at-most-once. To survive that: submit with"
        )
        return [f"{ends} --delivery {Delivery.SURVIVE}   Details: {about}"] if asked is None and len(used) > 1 else []
    if not delivery.saves_less:
        return []
    from agiledart_cli.survival_texts import losses_of, survival_text
    from agiledart_dataflow.plan.stages import plan_stages
    from agiledart_node.user_commands.recovery_facts import recovery_facts

    specification = SPECIFICATION_CODEC.decode(command.specification)
    facts: Any = msgspec.to_builtins(recovery_facts(specification, plan_stages(specification), delivery, placement))
    return [f"{survival_text(facts)}   Details: {about}", *losses_of(facts)]


class _PendingCapacity(Exception):
    """The application waits for free capacity."""


def _started(client: ControlClient, command: Submit, *, wait: bool) -> Any:
    """Return the response to a submission; None when it waits for capacity and `wait` is false."""

    def on_progress(text: str) -> None:
        print_message(f"  {text}")
        if f" {WAITING_FOR_CAPACITY}: " in text and not wait:
            raise _PendingCapacity

    try:
        return client.ask(command, on_progress=on_progress, timeout=SUBMIT_SECONDS)
    except _PendingCapacity:
        return None
    except CommandRefusedError as error:
        if "Stop it first: " not in str(error):
            raise
        text = (
            f"{error}   Or replace it:  agiledart submit --replace … (drains it first), agiledart submit --upgrade … (keeps its"
            " state), or agiledart stop … --checkpoint S, then agiledart checkpoint restore S …"
        )
        raise CommandRefusedError(text, error.exit_code, error.reason) from None
    except KeyboardInterrupt:
        if not command.dry_run:
            name = name_of(command)
            print_message(
                f"{name} is still being started. Watch: agiledart status {name}   Stop it: agiledart stop {name}"
            )
        raise


def _upgraded(client: ControlClient, command: Submit, drops: tuple[str, ...], identity: str, *, quiet: bool) -> Any:
    """Upgrade the running application and return its status; None when there is none, or for a dry run, which goes on."""
    from agiledart_cli.verbs.state.upgrading import check, task_of, upgraded

    name = name_of(command)
    task = task_of(client, name, command, drops, identity)
    if task is None:
        print_message(f"  no run of {name} that could be upgraded: it starts without state")
        return None
    if client.ask(Status(name))["state"] not in FINAL_STATES:
        check(client, task, command, quiet=quiet)
        if command.dry_run:
            return None
        _refuse_impossible(client, command)
    return upgraded(client, task)


def _stop_previous(client: ControlClient, command: Submit) -> None:
    """Drain and end the running application of a submission's name, if there is one.

    Raises:
        CommandRefusedError: the successor cannot run.
    """
    name = name_of(command)
    try:
        if client.ask(Status(name))["state"] in FINAL_STATES:
            return
    except CommandRefusedError:  # no such application
        return
    _refuse_impossible(client, command)
    _drain(client, name)


def _refuse_impossible(client: ControlClient, command: Submit) -> None:
    """Check that a submission can take the place of the running application of its name.

    The running application stays when its successor cannot run in any case: for an unknown node, code that does not load, or a
    log of another owner. Capacity and exclusive resources (a port) are not checked, because the end of the old run frees them.

    Raises:
        CommandRefusedError: the successor cannot run.
    """
    name = name_of(command)
    faults: list[str] = []
    try:
        on_progress = client.ask(msgspec.structs.replace(command, dry_run=True), timeout=SUBMIT_SECONDS)
        faults = [
            f"{row['node']}: {row['text']}" for row in on_progress["checks"] if not row["stage"] and not row["is_good"]
        ]
    except CommandRefusedError as error:
        if error.exit_code == USAGE or error.reason in NEVER_MAY:
            raise CommandRefusedError(
                f"{str(error).rstrip('.')}. {name} keeps running unchanged.", error.exit_code
            ) from None
    if faults:
        raise CommandRefusedError(f"{'; '.join(faults)}. {name} keeps running unchanged.", FAILED)


def _drain(client: ControlClient, name: str) -> None:
    print_message(f"  {name} is running: draining it first")
    try:
        client.ask(Stop(name), on_progress=lambda text: print_message(f"  {text}"), timeout=STOP_SECONDS)
    except CommandRefusedError:
        if client.ask(Status(name))["state"] not in FINAL_STATES:  # else it has ended by itself in the meantime
            raise
    except KeyboardInterrupt:
        print_message(f"{name} is being drained and will stop; no application was submitted.")
        raise
