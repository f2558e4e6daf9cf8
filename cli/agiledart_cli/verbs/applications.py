"""Verbs about applications: `submit`, `list`, `status`, `stop`, `share`, `logs`."""

import time
from pathlib import Path
from typing import Any

import click

from agiledart_cli.control_client import ControlClient, connect
from agiledart_cli.errors import FAILED
from agiledart_cli.options import (
    agent_options,
    not_empty,
    parallelism_by_step,
    parallelism_option,
    parse_parallelism,
    set_option,
)
from agiledart_cli.output import BAD, GOOD, json_text, output_option, print_json, say
from agiledart_cli.targets import load_target
from agiledart_cli.verbs.application_view import print_applications, print_plan, print_status, print_sums
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless, harmless_document
from agiledart_node.wire.commands import Asked, ListApplications, Logs, Share, Status, Stop, Submit

FINAL_STATES = ("finished", "failed", "stopped")

POLL_SECONDS = 0.3
MAX_LOG_ANSWERS = 32
"""Answers that `logs` asks for without `--follow`: more than an agent's kept lines ever need."""

LOG_POLL_SECONDS = 0.5
STOP_SECONDS = 180.0
"""For an agent to drain an application; it gives up and cuts by itself before."""


def make_submission(
    target: str,
    settings: dict[str, str],
    parallelism: dict[str, Asked],
    *,
    name: str = "",
    executors: int = 0,
    dry_run: bool = False,
) -> Submit:
    """The command that submits `FILE:NAME` with these settings; raises what the user has to read.

    The topology is built from the bundle, exactly as the nodes will: what fails there fails here first.
    """
    from agiledart_executor.user_code.user_code import build, encode_bundle, load_bundle, make_bundle
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
    bundle = make_bundle(builder, settings, application=name)
    topology = load_bundle(bundle)
    specification = topology.specification()
    chosen = parallelism_by_step(specification, parallelism)
    return Submit(name, encode(specification), encode_bundle(bundle), chosen, executors, dry_run, topology.delivery)


@click.command(short_help="Run a topology on the mesh.")
@click.argument("target", metavar="FILE:NAME")
@set_option
@parallelism_option
@click.option("--name", default="", callback=not_empty, help="The application's name. Default: the topology's own.")
@click.option("--executors", type=click.IntRange(1, 64), default=None, help="Worker processes of each node to use.")
@click.option("--dry-run", is_flag=True, help="Show what would run where; start nothing.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit 1 when it failed.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up waiting after this time (it runs on).")
@agent_options
@output_option
def submit(
    target: str,
    settings: tuple[str, ...],
    parallelism: tuple[str, ...],
    name: str,
    executors: int | None,
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

    The function runs here and, from the same source files, on every node that hosts a part; the nodes refuse code that
    builds another graph there. @NODE says where a source or sink runs; without it that is the agent you ask.
    Paths are made absolute here; the file must exist on the node where its source runs.
    """
    from agiledart_executor.user_code.user_parameters import parse_settings

    command = make_submission(
        target,
        parse_settings(settings),
        parse_parallelism(parallelism),
        name=name,
        executors=executors or 0,
        dry_run=dry_run,
    )
    with connect(agent, identity) as client:
        body = client.ask(command, on_progress=lambda text: say(f"  {text}"))
        if dry_run or not wait:
            print_json(body) if output == "json" else print_plan(harmless_document(body), dry_run=dry_run)
            return 0
        if output != "json":
            print_plan(harmless_document(body), dry_run=False)
        try:
            final = wait_for_end(client, body["name"], timeout)
        except KeyboardInterrupt:
            say(f"Not waiting any longer: {body['name']} runs on. Stop it: agiledart stop {body['name']}")
            raise
    if output == "json":
        print_json(final)
    else:
        print_status(harmless_document(final))
    return FAILED if final["state"] == "failed" or final["state"] not in FINAL_STATES else 0


def wait_for_end(client: ControlClient, name: str, timeout: float | None) -> Any:
    """The status of an application when it has ended, or after `timeout` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        body = client.ask(Status(name))
        if body["state"] in FINAL_STATES:
            return body
        if deadline is not None and time.monotonic() >= deadline:
            say(f"{name} still is {body['state']}; not waiting any longer.", colour=BAD)
            return body
        time.sleep(POLL_SECONDS)


@click.command(name="list", short_help="All applications of the network.")
@agent_options
@output_option
def list_applications(agent: str | None, identity: str | None, output: str) -> None:
    """All applications of the network, also those that have ended.

    \b
    Example:
      agiledart list
      agiledart list -o json
    """
    with connect(agent, identity) as client:
        body = client.ask(ListApplications())
    if output == "json":
        print_json(body)
    else:
        print_applications(harmless_document(body))


@click.command(short_help="How an application is doing, and where.")
@click.argument("name")
@agent_options
@output_option
def status(name: str, agent: str | None, identity: str | None, output: str) -> int:
    """How an application is doing, and where each of its steps runs. Exit code 1 when it has failed.

    \b
    Example:
      agiledart status frequent-routes
      agiledart status frequent-routes -o json --agent pi1:9464 --identity @reader.token
    """
    with connect(agent, identity) as client:
        body = client.ask(Status(name))
    if output == "json":
        print_json(body)
    else:
        print_status(harmless_document(body))
    return FAILED if body["state"] == "failed" else 0


@click.command(short_help="End an application: drain it, or cut it with --now.")
@click.argument("name")
@click.option("--now", is_flag=True, help="Cut it: what is under way is lost.")
@agent_options
@output_option
def stop(name: str, now: bool, agent: str | None, identity: str | None, output: str) -> None:
    """End an application. Its sources stop reading, what they have read comes out, then it is stopped.

    \b
    Example:
      agiledart stop frequent-routes
      agiledart stop frequent-routes --now
    """
    with connect(agent, identity) as client:
        body = client.ask(Stop(name, now), on_progress=lambda text: say(f"  {text}"), timeout=STOP_SECONDS)
    if output == "json":
        print_json(body)
    else:
        say(f"{name} v{body['version']} is {body['state']}.", colour=GOOD)
        print_sums(harmless_document(body.get("summary") or {}))


@click.command(short_help="Let another key act on an application.")
@click.argument("name")
@click.argument("key")
@click.option("--revoke", is_flag=True, help="Take it back.")
@agent_options
@output_option
def share(name: str, key: str, revoke: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Let another key act on an application as you may: stop it, tap it, submit it again. Only its owner and admins share it.

    \b
    Example:
      agiledart share frequent-routes 6d0b…        (64 hex digits: what a refusal told the other user)
      agiledart share frequent-routes 6d0b… --revoke
    """
    with connect(agent, identity) as client:
        body = client.ask(Share(name, key, revoke))
    if output == "json":
        print_json(body)
    else:
        keys = ", ".join(f"{one[:16]}…" for one in body["shared"]) or "nobody"
        say(f"{name} v{body['version']} is shared with {keys}.", colour=GOOD)


@click.command(short_help="What the code of an application printed, on all nodes.")
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is printed from now on, until it ends or Ctrl-C.")
@agent_options
@output_option
def logs(name: str, follow: bool, agent: str | None, identity: str | None, output: str) -> None:
    """What the code of an application printed or logged, on all nodes, with the node in front.

    \b
    Example:
      agiledart logs frequent-routes
      agiledart logs -f frequent-routes

    With -o json: one document of all lines; with -f and -o json, which has no end, one line of JSON for each line.
    """
    after: dict[str, int] = {}
    kept: list[dict[str, Any]] = []
    answers = 0
    with connect(agent, identity) as client:
        while True:
            body = client.ask(Logs(name, after))
            if follow or output != "json":
                _print_lines(body["lines"], output)
            else:
                kept += body["lines"]
            after = body["after"]
            answers += 1
            if not body["lines"] and (not follow or body["state"] in FINAL_STATES):
                break
            if not follow and answers >= MAX_LOG_ANSWERS:  # it prints faster than we read
                break
            if not body["lines"]:
                time.sleep(LOG_POLL_SECONDS)
    if output == "json" and not follow:
        print_json({**body, "lines": kept})
    if output != "json" and body["silent_nodes"]:
        say(f"No answer from {', '.join(body['silent_nodes'])}: their lines are not here.", colour=BAD)


def _print_lines(lines: list[dict[str, Any]], output: str) -> None:
    for line in lines:
        if output == "json":
            click.echo(json_text(line))
        else:
            click.echo(harmless(f"{line['node']}  {line['step'] + '  ' if line['step'] else ''}{line['text']}"))
