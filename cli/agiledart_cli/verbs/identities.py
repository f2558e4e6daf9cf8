"""`agiledart identity`: who you are to agents on other machines."""

import contextlib
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from agiledart_cli.output import GOOD, duration, output_option, print_json, print_message, print_table
from agiledart_cli.verbs.access.memberships import directory, export, renew, rotate, state_dir_option
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.grants import decode_link

COUNT_SECONDS = 5.0


@click.group(short_help="Who you are to agents on other machines.")
def identity() -> None:
    """Who you are to agents on other machines.

    \b
    Example:
      agiledart identity add work @submitter.token
      agiledart list --agent pi1:9464 --identity work
      agiledart identity renew work                (a member for as long again)
      agiledart identity rotate work --token @FILE (another key, when others may have this one)
      agiledart identity export --authority FILE   (the network's own key, for a safe)

    The first command that uses a token keeps a key of your own (in ~/.config/agiledart/identities, for you alone), so that
    later ones go on when the token lets nobody in any more. A key that is lost cannot be made again without its token.
    """


@identity.command(short_help="Give who holds a token a name.")
@click.argument("name")
@click.argument("token", metavar="TOKEN|@FILE|-")
@output_option
def add(name: str, token: str, output: str) -> None:
    """Give who holds a token a name for `--identity`, and have its use counted by an agent that the token names.

    \b
    Example:
      agiledart identity add work @submitter.token
    """
    from agiledart_agent.identity.tokens import PREFIX, parse_token, read_token
    from agiledart_agent.identity.user_identity import keep_identity

    text = read_token(token)
    path = keep_identity(name, text if text.startswith(PREFIX) else token)
    known = parse_token(text) if text.startswith(PREFIX) else None
    counted_by = _admitted_by(name, known.addresses) if known is not None else ""
    if output == "json":
        print_json({"name": name, "file": str(path), "counted_by": counted_by})
        return
    print_message(f"You are {name} from now on, where you say --identity {name}. Kept in {path}.", colour=GOOD)
    if known is not None and not counted_by:
        left = known.record.join_before - time.time()
        if left > 0:
            print_message(
                f"No agent of the network answered: use it within {duration(left)}, or the token lets you in no more."
            )


def _admitted_by(name: str, addresses: tuple[str, ...]) -> str:
    """The first agent that lets us in; empty: none could be reached. Raises OperationFailed when one refuses us."""
    from agiledart_cli.remote import RemoteConnection

    for address in addresses:
        with contextlib.suppress(OSError, ValueError):
            RemoteConnection(address, name, COUNT_SECONDS).close()
            return address
    return ""


@identity.command(short_help="Role, scope, key and time of an identity.")
@click.argument("name", metavar="NAME|@FILE", required=False)
@state_dir_option
@output_option
def show(name: str | None, state_dir: Path | None, output: str) -> None:
    """Role, scope, key and time of an identity; without a name: of this machine's node. A user's key is what others share
    applications with: `agiledart share`.

    \b
    Example:
      agiledart identity show work
      agiledart identity show
    """
    body = _described(name) if name is not None else _node_described(directory(state_dir))
    if output == "json":
        print_json(body)
        return
    left = body["until"] - time.time()
    click.echo(f" role     {body['role']}{' of ' + body['scope'] if body['scope'] else ''}")
    click.echo(f" key      {body['key']}")
    click.echo(
        f" member   {'for ' + duration(left) + ' more' if left > 0 else 'no more: ended ' + duration(-left) + ' ago'}"
    )
    if quota := " ".join(f"{what}={most}" for what, most in body.get("quota", {}).items() if most):
        click.echo(f" quota    {quota}")
    click.echo(f" network  {body['network'][:16]}…")
    if body.get("has_authority"):
        click.echo(
            " holds    the network's authority key: keep a copy of it (agiledart identity export --authority FILE)"
        )


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


def _node_described(folder: Path) -> dict[str, Any]:
    from agiledart_agent.identity.identity import Identity

    found = Identity.read(folder)
    if not found.chain:
        raise OperationFailed(f"The node in {folder} belongs to no network yet.")
    link = decode_link(found.chain[-1])
    return {
        "role": link.role, "scope": link.scope, "key": link.key.hex(), "until": link.not_after, "network": found.network.hex(),
        "node_id": found.node_id.hex, "has_authority": found.authority is not None,
    }  # fmt: skip


def _described(name: str) -> dict[str, Any]:
    from agiledart_agent.identity.user_identity import identity_of, last_link

    found = identity_of(name)
    link = last_link(found)
    return {
        "role": link.role, "scope": link.scope, "key": link.key.hex(), "until": link.not_after, "network": found.network.hex(),
        "quota": msgspec.structs.asdict(link.quota),
    }  # fmt: skip


for _verb in (renew, rotate, export):
    identity.add_command(_verb)
