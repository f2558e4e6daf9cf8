"""Verbs for submitted applications: `list`, `status`, `stop`, `forget`, `share`, `logs`."""

from typing import Any

import click

from agiledart_cli.errors import FAILED
from agiledart_cli.known_names import APPLICATION
from agiledart_cli.options import agent_options, not_empty
from agiledart_cli.output import BAD, GOOD, json_text, output_option, print_json, print_message
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.application_view import (
    print_applications,
    print_retained,
    print_status,
    print_sums,
)
from agiledart_cli.verbs.wait_reporter import of_application, waits_reported
from agiledart_control.polling import FINAL_STATES, log_responses
from agiledart_kernel.text import harmless, harmless_document
from agiledart_node.wire.commands import Forget, ListApplications, ShareApplication, Status, Stop

KEEP_SECONDS = 2_000.0
"""Timeout of storing the state of an application as a file on several nodes; the agent gives up earlier by itself."""

STOP_SECONDS = 180.0
"""Timeout of draining an application; the agent ends it at once, earlier, when it does not drain."""


@click.command(name="list", short_help="List all applications of the network.")
@agent_options
@output_option
def list_applications(agent: str | None, identity: str | None, output: str) -> None:
    """List all applications of the network, also those that have ended.

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


@click.command(short_help="Show the state of an application and where it runs.")
@click.argument("name", type=APPLICATION)
@agent_options
@output_option
def status(name: str, agent: str | None, identity: str | None, output: str) -> int:
    """Show the state of an application and where each of its steps runs. Exit code 1 when it has failed.

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


@click.command(short_help="Stop an application: drain it, or end it at once with --now.")
@click.argument("name", type=APPLICATION)
@click.option("--now", is_flag=True, help="End it at once; rows in flight are lost.")
@click.option(
    "--checkpoint",
    "checkpoint",
    default="",
    callback=not_empty,
    metavar="S",
    help="Close no windows: take a last checkpoint and retain it as S; the application can be restored from it later.",
)
@agent_options
@output_option
def stop(name: str, now: bool, checkpoint: str, agent: str | None, identity: str | None, output: str) -> None:
    """Stop an application: its sources stop reading, the rows already read are processed, then it ends.

    \b
    Example:
      agiledart stop frequent-routes
      agiledart stop frequent-routes --now
      agiledart stop frequent-routes --checkpoint before-the-change

    With --checkpoint (for an application with delivery="exactly-once") nothing is drained: up to three nodes retain the open
    windows and the state, until you run  agiledart checkpoint remove. If no node can store it, the application keeps running.
    """
    timeout = KEEP_SECONDS if checkpoint else STOP_SECONDS
    with connect(agent, identity) as client, waits_reported(agent, identity, of_application(name)):
        response = client.ask(
            Stop(name, now, checkpoint), on_progress=lambda text: print_message(f"  {text}"), timeout=timeout
        )
    if output == "json":
        print_json(response)
    else:
        print_message(f"{name} v{response['version']} is {response['state']}.", colour=GOOD)
        if response.get("checkpoint"):
            print_retained([harmless_document(response["checkpoint"])])
            print_message(f"Restore it: agiledart checkpoint restore {checkpoint} FILE:NAME")
        print_sums(harmless_document(response.get("summary") or {}))


@click.command(short_help="Remove an application that has ended from `list`.")
@click.argument("name", type=APPLICATION)
@agent_options
@output_option
def forget(name: str, agent: str | None, identity: str | None, output: str) -> None:
    """Remove an application that has ended from `list`, and free its name. Rows that its sinks wrote stay.

    \b
    Example:
      agiledart forget frequent-routes

    Applications that ended more than 30 days ago are removed automatically.
    """
    with connect(agent, identity) as client:
        response = client.ask(Forget(name))
    if output == "json":
        print_json(response)
    else:
        print_message(f"{name} v{response['version']} is forgotten.", colour=GOOD)


@click.command(short_help="Permit another key to manage an application.")
@click.argument("name", type=APPLICATION)
@click.argument("key")
@click.option("--revoke", is_flag=True, help="Withdraw the permission.")
@agent_options
@output_option
def share(name: str, key: str, revoke: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Permit another key to manage an application as you can: stop it, tap it, submit it again. Only its owner and admins may.

    \b
    Example:
      agiledart share frequent-routes 6d0b…        (64 hex digits, shown by its refusal)
      agiledart share frequent-routes 6d0b… --revoke
    """
    with connect(agent, identity) as client:
        response = client.ask(ShareApplication(name, key, revoke))
    if output == "json":
        print_json(response)
    else:
        keys = ", ".join(f"{shared_key[:16]}…" for shared_key in response["shared"]) or "no key"
        print_message(f"{name} v{response['version']} is shared with {keys}.", colour=GOOD)


@click.command(short_help="Show the output of an application's code on all nodes.")
@click.argument("name", type=APPLICATION)
@click.option(
    "-f", "--follow", is_flag=True, help="Also show new lines, until the application ends or you press Ctrl-C."
)
@agent_options
@output_option
def logs(name: str, follow: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Show the lines that the code of an application printed or logged, on all nodes; each line begins with its node.

    \b
    Example:
      agiledart logs frequent-routes
      agiledart logs -f frequent-routes

    With -o json: one document with all lines; with -f and -o json: one JSON object a line, without end.
    """
    all_lines: list[dict[str, Any]] = []
    answered_lines = 0
    response: Any = {}
    with connect(agent, identity) as client:
        for response in log_responses(client.ask, name, follow=follow):
            answered_lines += len(response["lines"])
            if follow or output != "json":
                _print_lines(response["lines"], output)
            else:
                all_lines += response["lines"]
    if output == "json" and not follow:
        print_json({**response, "lines": all_lines})
    if not answered_lines and output != "json":
        when = "has printed or logged nothing" + ("" if response["state"] in FINAL_STATES else " yet")
        print_message(f"The code of {name} {when}.")
    if output != "json" and response["silent_nodes"]:
        print_message(f"No answer from {', '.join(response['silent_nodes'])}: their lines are missing.", colour=BAD)


def _print_lines(lines: list[dict[str, Any]], output: str) -> None:
    for line in lines:
        if output == "json":
            click.echo(json_text(line))
        else:
            click.echo(harmless(f"{line['node']}  {line['step'] + '  ' if line['step'] else ''}{line['text']}"))
