"""`agiledart identity`: who you are to agents on other machines."""

import time
from typing import Any

import click

from agiledart_cli.output import GOOD, duration, output_option, print_json, print_table, say


@click.group(short_help="Who you are to agents on other machines.")
def identity() -> None:
    """Who you are to agents on other machines.

    \b
    Example:
      agiledart identity add work @submitter.token
      agiledart list --agent pi1:9464 --identity work

    The first command that uses a token keeps a key of your own (in ~/.config/agiledart/identities, for you alone), so that
    later ones go on when the token lets nobody in any more. A key that is lost cannot be made again without its token.
    """


@identity.command(short_help="Give who holds a token a name.")
@click.argument("name")
@click.argument("token", metavar="TOKEN|@FILE|-")
@output_option
def add(name: str, token: str, output: str) -> None:
    """Give who holds a token a name for `--identity`. Asks no agent.

    \b
    Example:
      agiledart identity add work @submitter.token
    """
    from agiledart_agent.identity.user_identity import keep_identity

    path = keep_identity(name, token)
    if output == "json":
        print_json({"name": name, "file": str(path)})
    else:
        say(f"You are {name} from now on, where you say --identity {name}. Kept in {path}.", colour=GOOD)


@identity.command(short_help="Role, scope, key and time of an identity.")
@click.argument("name", metavar="NAME|@FILE")
@output_option
def show(name: str, output: str) -> None:
    """Role, scope, key and time of an identity. The key is what others share applications with: `agiledart share`.

    \b
    Example:
      agiledart identity show work
    """
    body = _described(name)
    if output == "json":
        print_json(body)
        return
    left = body["until"] - time.time()
    click.echo(f" role     {body['role']}{' of ' + body['scope'] if body['scope'] else ''}")
    click.echo(f" key      {body['key']}")
    click.echo(
        f" member   {'for ' + duration(left) + ' more' if left > 0 else 'no more: ended ' + duration(-left) + ' ago'}"
    )
    click.echo(f" network  {body['network'][:16]}…")


@identity.command(name="list", short_help="The identities that are kept here.")
@output_option
def list_identities(output: str) -> None:
    """The identities that are kept here, also those of tokens that were used without a name.

    \b
    Example:
      agiledart identity list
    """
    from agiledart_agent.identity.user_identity import known_identities

    bodies = [{"name": name, **_described(name)} for name in known_identities()]
    if output == "json":
        print_json({"identities": bodies})
    elif not bodies:
        click.echo("None is kept. The first command with --identity @FILE keeps one.")
    else:
        rows = [[body["name"], body["role"], body["scope"], body["key"][:16], body["network"][:16]] for body in bodies]
        print_table(["name", "role", "scope", "key", "network"], rows)


def _described(name: str) -> dict[str, Any]:
    from agiledart_agent.identity.user_identity import identity_of, last_link

    found = identity_of(name)
    link = last_link(found)
    return {
        "role": link.role, "scope": link.scope, "key": link.key.hex(), "until": link.not_after, "network": found.network.hex()
    }  # fmt: skip
