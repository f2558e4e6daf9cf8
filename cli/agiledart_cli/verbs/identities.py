"""`agiledart identity`: manage your identities for agents on other machines."""

import contextlib
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from agiledart_cli.output import GOOD, duration, output_option, print_json, print_message, print_table
from agiledart_cli.verbs.access.memberships import directory, export, operator, renew, rotate, state_dir_option
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.grants import decode_link

COUNT_SECONDS = 5.0


@click.group(short_help="Manage your identities for agents on other machines.")
def identity() -> None:
    """Manage your identities for agents on other machines.

    \b
    Example:
      agiledart identity add work @submitter.token
      agiledart list --agent pi1:9464 --identity work
      agiledart identity renew work                (renews the membership)
      agiledart identity rotate work --token @FILE (another key, if this one may be compromised)
      agiledart identity export --authority FILE   (the authority key, for a safe)
      agiledart identity operator @FILE            (the rights of this machine's control socket)

    The first command that uses a token stores a key of your own (in ~/.config/agiledart/identities, readable by you only), so
    later commands work after the token has expired. A lost key cannot be restored without its token.
    """


@identity.command(short_help="Give the holder of a token a name.")
@click.argument("name")
@click.argument("token", metavar="TOKEN|@FILE|-")
@output_option
def add(name: str, token: str, output: str) -> None:
    """Give the holder of a token a name for `--identity`, and register the use of the token with an agent.

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
    print_message(f"Use --identity {name} from now on. The identity is stored in {path}.", colour=GOOD)
    if known is not None and not counted_by:
        left = known.record.join_before - time.time()
        if left > 0:
            print_message(
                f"No agent of the network answered: use the identity within {duration(left)}, before the token expires."
            )


def _admitted_by(name: str, addresses: tuple[str, ...]) -> str:
    """Return the first agent that admits the user; empty when none is reachable. Raises OperationFailed when one refuses."""
    from agiledart_control.remote_connection import RemoteConnection

    for address in addresses:
        with contextlib.suppress(OSError, ValueError):
            RemoteConnection(address, name, COUNT_SECONDS).close()
            return address
    return ""


@identity.command(short_help="Show role, scope, key and time of an identity.")
@click.argument("name", metavar="NAME|@FILE", required=False)
@state_dir_option
@output_option
def show(name: str | None, state_dir: Path | None, output: str) -> None:
    """Show role, scope, key and time of an identity; without NAME of this machine's node. Other users share applications with
    your key: `agiledart share`.

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
    click.echo(f" member   {'for ' + duration(left) + ' more' if left > 0 else 'ended ' + duration(-left) + ' ago'}")
    if quota := " ".join(f"{resource}={most}" for resource, most in body.get("quota", {}).items() if most):
        click.echo(f" quota    {quota}")
    click.echo(f" network  {body['network'][:16]}…")
    if body.get("operator"):
        click.echo(f" operator {body['operator']['role']}, key {body['operator']['key']}")
    if body.get("has_authority"):
        click.echo(
            " holds    the network's authority key: keep a copy of it (agiledart identity export --authority FILE)"
        )


@identity.command(name="list", short_help="List the identities on this machine.")
@output_option
def list_identities(output: str) -> None:
    """List the identities on this machine, including those of tokens that were used without a name.

    \b
    Example:
      agiledart identity list
    """
    from agiledart_agent.identity.user_identity import known_identities

    entries = [{"name": name, **_described(name)} for name in known_identities()]
    if output == "json":
        print_json({"identities": entries})
    elif not entries:
        click.echo("No identity is stored. The first command with --identity @FILE stores one.")
    else:
        rows = [[body["name"], body["role"], body["scope"], body["key"][:16], body["network"][:16]] for body in entries]
        print_table(["name", "role", "scope", "key", "network"], rows)


def _node_described(folder: Path) -> dict[str, Any]:
    from agiledart_agent.identity.identity import Identity
    from agiledart_agent.identity.operator_identity import stored_operator

    node = Identity.read(folder)
    if not node.chain:
        raise OperationFailed(f"The node in {folder} belongs to no network yet.")
    link, user = decode_link(node.chain[-1]), stored_operator(node)
    own = decode_link(user.chain[-1]) if user is not None else None
    return {
        "operator": {"role": own.role, "scope": own.scope, "key": own.key.hex()} if own is not None else None,
        "role": link.role, "scope": link.scope, "key": link.key.hex(), "until": link.not_after, "network": node.network.hex(),
        "node_id": node.node_id.hex, "has_authority": node.authority is not None,
    }  # fmt: skip


def _described(name: str) -> dict[str, Any]:
    from agiledart_agent.identity.user_identity import identity_of, last_link

    user = identity_of(name)
    link = last_link(user)
    return {
        "role": link.role, "scope": link.scope, "key": link.key.hex(), "until": link.not_after, "network": user.network.hex(),
        "quota": msgspec.structs.asdict(link.quota),
    }  # fmt: skip


for _verb in (renew, rotate, export, operator):
    identity.add_command(_verb)
