"""`agiledart checkpoint recover`: an application goes on without the majority of its voters, which is gone for ever."""

import sys
from typing import Any

import click

from agiledart_cli.control_client import ControlClient, connect
from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, WATCH, output_option, paint, print_json, print_message
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import RecoverRun

RECOVER_SECONDS = 180.0
"""For the new voters to take their first value; the agent gives up by itself before."""


@click.command(short_help="Go on without voters that are gone for ever.")
@click.argument("name")
@click.option("--without", "without", multiple=True, required=True, metavar="NODE",
              help="A voter that is gone for ever, by its name or id; once for each.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--dry-run", is_flag=True, help="Say what would come of it, and change nothing.")
@agent_options
@output_option
def recover(
    name: str, without: tuple[str, ...], yes: bool, dry_run: bool, agent: str | None, identity: str | None, output: str
) -> None:
    """Have an application with delivery="exactly-once" go on when the majority of its voters is gone for ever. Admins only.

    \b
    Example:
      agiledart status frequent-routes
      agiledart checkpoint recover frequent-routes --without pi3 --without pi4 --dry-run
      agiledart checkpoint recover frequent-routes --without pi3 --without pi4

    What counts of an application is in its register, on three or five voters; without most of them nothing more counts, and it
    waits for them: `agiledart status` says for whom. Where they come back, it goes on by itself and loses nothing. Where they do
    not, this gives it new voters and the newest state that those that are left know of.

    It asks before it does it, and says: from which epoch it goes on; that rows which the lost voters committed after that may
    appear twice; what waits, or cannot be rebuilt, as it was on the lost nodes alone. It is refused while a majority answers, and
    while a voter that does not answer was not named. A voter that comes back later changes nothing: it lets go.
    Give the order once, and never on both sides of a cut network: each side would go on by itself.
    """
    with connect(agent, identity) as client:
        found = client.ask(RecoverRun(name, without, check=True))
        if not dry_run:
            _confirm(found, without, yes=yes)
            found = _carried_out(client, RecoverRun(name, without))
    if output == "json":
        print_json(found)
    else:
        _print(harmless_document(found))


def _carried_out(client: ControlClient, command: RecoverRun) -> dict[str, Any]:
    found: dict[str, Any] = client.ask(
        command, on_progress=lambda text: print_message(f"  {text}"), timeout=RECOVER_SECONDS
    )
    return found


def _confirm(found: dict[str, Any], without: tuple[str, ...], *, yes: bool) -> None:
    """Raises ConfigurationError where nobody says yes."""
    if yes:
        return
    shown = harmless_document(found)
    for note in shown["warnings"]:
        print_message(f"  {note}")
    if not sys.stdin.isatty():
        raise ConfigurationError(
            f"Nothing was changed: {shown['name']} would lose what only {', '.join(shown['lost_voters'])} knew. To do it:  "
            f"agiledart checkpoint recover {shown['name']} {' '.join(f'--without {one}' for one in without)} --yes"
        )
    if not click.confirm(f"Have {shown['name']} go on without {', '.join(shown['lost_voters'])}?", err=True):
        raise ConfigurationError("Nothing was changed.")


def _print(response: dict[str, Any]) -> None:
    for note in response["warnings"]:
        print_message(f"  {note}")
    lost = ", ".join(response["lost_voters"])
    if response["done"]:
        print_message(
            f"{response['name']} goes on from epoch {response['epoch']} without {lost}, in generation {response['quorum_generation']}."
            f" Its voters: {', '.join(response['voters'])}.",
            colour=GOOD,
        )
        print_message(f" Watch: agiledart status {response['name']}")
    else:
        click.echo(
            paint(
                f"{response['name']} would go on from epoch {response['epoch']} without {lost}; nothing was changed.",
                WATCH,
            )
        )
