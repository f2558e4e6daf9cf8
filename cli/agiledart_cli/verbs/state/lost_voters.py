"""`agiledart checkpoint recover`: continue an application whose majority of voters is lost for good."""

import sys
from typing import Any

import click

from agiledart_cli.known_names import APPLICATION
from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, WATCH, output_option, paint, print_json, print_message
from agiledart_cli.verb_connection import connect
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.checkpoint_commands import RecoverRun

RECOVER_SECONDS = 180.0
"""Timeout of the first value on the new voters; the agent gives up earlier by itself."""


@click.command(short_help="Continue without voters that are lost for good.")
@click.argument("name", type=APPLICATION)
@click.option("--without", "without", multiple=True, required=True, metavar="NODE",
              help="Name or id of a voter that is lost for good; repeat the option for each.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show the consequences and change nothing.")
@agent_options
@output_option
def recover(
    name: str, without: tuple[str, ...], yes: bool, dry_run: bool, agent: str | None, identity: str | None, output: str
) -> None:
    """Continue an application with delivery="exactly-once" after the majority of its voters is lost for good. Admins only.

    \b
    Example:
      agiledart status frequent-routes
      agiledart checkpoint recover frequent-routes --without pi3 --without pi4 --dry-run
      agiledart checkpoint recover frequent-routes --without pi3 --without pi4

    Three or five voters store the register of an application. Without their majority it commits nothing and waits for them:
    `agiledart status` names them. If they return, the application continues by itself and loses nothing. If they do not, this
    command gives it new voters and the newest state that the remaining voters know.

    The command asks for confirmation. It shows from which checkpoint the application continues, that rows which the lost voters
    committed after it may be duplicated, and which parts wait or cannot be rebuilt. The agent refuses it while a majority
    answers, or while a voter that does not answer is not named. A lost voter that returns later has no effect.
    Run it once, and never on both sides of a network partition: each side would continue separately.
    """
    with connect(agent, identity) as client:
        outcome = client.ask(RecoverRun(name, without, check=True))
        if not dry_run:
            _confirm(outcome, without, yes=yes)
            outcome = _carried_out(client, RecoverRun(name, without))
    if output == "json":
        print_json(outcome)
    else:
        _print(harmless_document(outcome))


def _carried_out(client: ControlClient, command: RecoverRun) -> dict[str, Any]:
    outcome: dict[str, Any] = client.ask(
        command, on_progress=lambda text: print_message(f"  {text}"), timeout=RECOVER_SECONDS
    )
    return outcome


def _confirm(state: dict[str, Any], without: tuple[str, ...], *, yes: bool) -> None:
    """Ask for confirmation; raises ConfigurationError without it."""
    if yes:
        return
    shown = harmless_document(state)
    for note in shown["warnings"]:
        print_message(f"  {note}")
    if not sys.stdin.isatty():
        raise ConfigurationError(
            f"Nothing was changed: {shown['name']} would lose what only {', '.join(shown['lost_voters'])} stored. To confirm:  "
            f"agiledart checkpoint recover {shown['name']} {' '.join(f'--without {voter}' for voter in without)} --yes"
        )
    if not click.confirm(f"Continue {shown['name']} without {', '.join(shown['lost_voters'])}?", err=True):
        raise ConfigurationError("Nothing was changed.")


def _print(response: dict[str, Any]) -> None:
    for note in response["warnings"]:
        print_message(f"  {note}")
    lost = ", ".join(response["lost_voters"])
    if response["done"]:
        print_message(
            f"{response['name']} continues from checkpoint {response['epoch']} without {lost}, in generation"
            f" {response['quorum_generation']}. Its voters: {', '.join(response['voters'])}.",
            colour=GOOD,
        )
        print_message(f" Watch: agiledart status {response['name']}")
    else:
        click.echo(
            paint(
                f"{response['name']} would continue from checkpoint {response['epoch']} without {lost}; nothing was changed.",
                WATCH,
            )
        )
