"""Verbs about applications that were submitted: `list`, `status`, `stop`, `forget`, `share`, `logs`."""

import time
from typing import Any

import click

from agiledart_cli.control_client import connect
from agiledart_cli.errors import FAILED
from agiledart_cli.options import agent_options, not_empty
from agiledart_cli.output import BAD, GOOD, json_text, output_option, print_json, print_message
from agiledart_cli.verbs.application_view import (
    FINAL_STATES,
    print_applications,
    print_retained,
    print_status,
    print_sums,
)
from agiledart_kernel.text import harmless, harmless_document
from agiledart_node.wire.commands import Forget, ListApplications, Logs, ShareApplication, Status, Stop

MAX_LOG_ANSWERS = 32
"""Answers that `logs` asks for without `--follow`: more than an agent's kept lines ever need."""

LOG_POLL_SECONDS = 0.5
KEEP_SECONDS = 2_000.0
"""For the state of an application to be kept as a file on several nodes; the agent gives up by itself before."""

STOP_SECONDS = 180.0
"""For an agent to drain an application; it gives up and cuts by itself before."""


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
        response = client.ask(ListApplications())
    if output == "json":
        print_json(response)
    else:
        print_applications(harmless_document(response))


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
        response = client.ask(Status(name))
    if output == "json":
        print_json(response)
    else:
        print_status(harmless_document(response))
    return FAILED if response["state"] == "failed" else 0


@click.command(short_help="End an application: drain it, or cut it with --now.")
@click.argument("name")
@click.option("--now", is_flag=True, help="Cut it: what is under way is lost.")
@click.option(
    "--checkpoint",
    "kept",
    default="",
    callback=not_empty,
    metavar="S",
    help="Close no windows: take a last epoch, and keep its state as checkpoint S, from which it can go on later.",
)
@agent_options
@output_option
def stop(name: str, now: bool, kept: str, agent: str | None, identity: str | None, output: str) -> None:
    """End an application. Its sources stop reading, what they have read comes out, then it is stopped.

    \b
    Example:
      agiledart stop frequent-routes
      agiledart stop frequent-routes --now
      agiledart stop frequent-routes --checkpoint before-the-change

    With --checkpoint (of an application with delivery="exactly-once") nothing is drained: what is open in windows and states is
    kept on up to three nodes, until  agiledart checkpoint remove  lets it go. Where it cannot be kept the application goes on.
    """
    timeout = KEEP_SECONDS if kept else STOP_SECONDS
    with connect(agent, identity) as client:
        response = client.ask(
            Stop(name, now, kept), on_progress=lambda text: print_message(f"  {text}"), timeout=timeout
        )
    if output == "json":
        print_json(response)
    else:
        print_message(f"{name} v{response['version']} is {response['state']}.", colour=GOOD)
        if response.get("checkpoint"):
            print_retained([harmless_document(response["checkpoint"])])
            print_message(f"Go on from it: agiledart checkpoint restore {kept} FILE:NAME")
        print_sums(harmless_document(response.get("summary") or {}))


@click.command(short_help="Let an application that has ended go from `list`.")
@click.argument("name")
@agent_options
@output_option
def forget(name: str, agent: str | None, identity: str | None, output: str) -> None:
    """Let an application that has ended go from `list`; its name is free then. Rows that its sinks wrote stay.

    \b
    Example:
      agiledart forget frequent-routes

    Those that ended more than 30 days ago go by themselves.
    """
    with connect(agent, identity) as client:
        response = client.ask(Forget(name))
    if output == "json":
        print_json(response)
    else:
        print_message(f"{name} v{response['version']} is forgotten.", colour=GOOD)


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
        response = client.ask(ShareApplication(name, key, revoke))
    if output == "json":
        print_json(response)
    else:
        keys = ", ".join(f"{one[:16]}…" for one in response["shared"]) or "nobody"
        print_message(f"{name} v{response['version']} is shared with {keys}.", colour=GOOD)


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
    answers = answered_lines = 0
    with connect(agent, identity) as client:
        while True:
            response = client.ask(Logs(name, after))
            if follow or output != "json":
                _print_lines(response["lines"], output)
            else:
                kept += response["lines"]
            after = response["after"]
            answers += 1
            answered_lines += len(response["lines"])
            if not response["lines"] and (not follow or response["state"] in FINAL_STATES):
                break
            if not follow and answers >= MAX_LOG_ANSWERS:  # it prints faster than we read
                break
            if not response["lines"]:
                time.sleep(LOG_POLL_SECONDS)
    if output == "json" and not follow:
        print_json({**response, "lines": kept})
    if not answered_lines and output != "json":
        when = "has printed or logged nothing" + ("" if response["state"] in FINAL_STATES else " yet")
        print_message(f"The code of {name} {when}.")
    if output != "json" and response["silent_nodes"]:
        print_message(f"No answer from {', '.join(response['silent_nodes'])}: their lines are not here.", colour=BAD)


def _print_lines(lines: list[dict[str, Any]], output: str) -> None:
    for line in lines:
        if output == "json":
            click.echo(json_text(line))
        else:
            click.echo(harmless(f"{line['node']}  {line['step'] + '  ' if line['step'] else ''}{line['text']}"))
