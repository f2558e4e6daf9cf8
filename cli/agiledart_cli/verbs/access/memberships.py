"""`agiledart identity renew|rotate|export`: how long you are a member, by which key, and where the network's own key lies."""

import contextlib
import time
from pathlib import Path

import click

from agiledart_cli.control_client import connect
from agiledart_cli.errors import NoAgentError
from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, WATCH, duration, output_option, plural, print_json, print_message
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_node.wire.commands import ListApplications, RenewUserMembership, ShareApplication

state_dir_option = click.option(
    "--state-dir", metavar="DIR", type=click.Path(path_type=Path), help="Of the node. Default: the usual one."
)


def directory(given: Path | None) -> Path:
    """The state directory that is meant."""
    from agiledart_agent.settings import default_state_dir

    return (given or default_state_dir()).expanduser().absolute()


@click.command(short_help="Be a member for as long again.")
@click.argument("name", required=False)
@agent_options
@output_option
def renew(name: str | None, agent: str | None, identity: str | None, output: str) -> None:
    """Have a membership signed anew by an agent that holds the network's authority key, or an admin's: that of NAME, an identity
    that is kept here, or without a name that of the agent. Agents do this by themselves in the last tenth of theirs.

    \b
    Example:
      agiledart identity renew                              (this machine's agent)
      agiledart identity renew work --agent pi1:9464
    """
    if name is None:
        with connect(agent, identity) as client:
            response = client.ask(RenewUserMembership())
        whose = "The agent is"
    else:
        if identity is not None:
            raise ConfigurationError("NAME says whose membership it is; leave --identity out.")
        response = _renew_user(name, agent)
        whose = f"{name} is"
    if output == "json":
        print_json({"name": name or "", "until": response["until"]})
    else:
        print_message(f"{whose} a member for {duration(response['until'] - time.time())} more.", colour=GOOD)


def _renew_user(name: str, agent: str | None) -> dict[str, int]:
    from agiledart_agent.identity.rotation import renew_user
    from agiledart_agent.identity.user_identity import identity_of, kept_addresses

    found = identity_of(name)
    error: Exception = ConfigurationError(f"{name} names no agent to ask. Say which:  --agent HOST:PORT")
    for address in (agent,) if agent else kept_addresses(name):
        try:
            with connect(address, name) as client:
                response = client.ask(RenewUserMembership(found.chain, found.token))
        except NoAgentError as gone:
            error = gone
            continue
        renew_user(name, tuple(bytes.fromhex(link) for link in response["chain"]))
        return {"until": int(response["until"])}
    raise error


@click.command(short_help="Another key in the place of one that others may have.")
@click.argument("name", required=False)
@click.option(
    "--token",
    "text",
    metavar="TOKEN|@FILE|-",
    help="That lets the new key in. Not needed by who holds the authority's key.",
)
@state_dir_option
@click.option("--agent", metavar="HOST:PORT", help="To ask for NAME. Default: those that the token names.")
@output_option
def rotate(name: str | None, text: str | None, state_dir: Path | None, agent: str | None, output: str) -> None:
    """Take another key: for NAME, an identity that is kept here, or without a name for the stopped node of a state directory.

    \b
    Example:
      agiledart identity rotate --token @pi2.token          (then start the agent again)
      agiledart identity rotate work --token @new.token

    The old key stays good until an admin bans it; the command for that is printed. A node with another key is another node of the
    ring: its logs go on, what it kept for others is made anew elsewhere, and secrets have to be set for it again. Applications with
    delivery="exactly-once" that read or write there wait for the old key: drain it before, or stop them. What NAME owns is shared
    with its new key.
    """
    from agiledart_agent.identity.rotation import rotate_node
    from agiledart_agent.identity.tokens import parse_token, read_token

    token = parse_token(read_token(text)) if text else None
    runs: tuple[str, ...] = ()
    aside: Path | None = None
    if name is None:
        keys = rotate_node(directory(state_dir), token)
        old, new, shared, runs, aside = keys.old, keys.new, list[str](), keys.runs, keys.aside
    elif token is None:
        raise ConfigurationError(f"A new key for {name} needs a token that lets it in:  --token @FILE")
    else:
        from agiledart_agent.identity.rotation import rotate_user
        from agiledart_agent.identity.user_identity import identity_of, last_link

        old = last_link(identity_of(name)).key
        made, _ = rotate_user(name, token)
        new = last_link(made).key
        shared = _share(f"{name}.old", old, new, (agent,) if agent else token.addresses)
    if output == "json":
        print_json({"name": name or "", "old": old.hex(), "key": new.hex(), "shared": shared, "runs": list(runs)})
        return
    print_message(f"The key is {new.hex()} now.", colour=GOOD)
    if runs and aside is not None:
        _report_runs(runs, aside)
    if name is not None:
        said = (
            f"{plural(len(shared), 'application')} of the old key {'is' if len(shared) == 1 else 'are'} shared with it"
        )
        print_message(f"{said}; the old key is kept as {name}.old.")
    print_message(f"Shut the old one out (an admin):  agiledart ban {old.hex()} --reason 'key changed'")


def _report_runs(runs: tuple[str, ...], aside: Path) -> None:
    """What becomes of the runs of a node that has another key."""
    print_message(
        f"This node had a part in {', '.join(runs)}: what others cannot bring back waits for the old key. End and submit it again:"
    )
    for one in runs:
        print_message(f"  agiledart stop {one} --now", colour=WATCH)
    print_message(
        f"The files of {'that run' if len(runs) == 1 else 'those runs'} are in {aside} now; remove it when they are over."
    )


def _share(name: str, old: bytes, new: bytes, addresses: tuple[str, ...]) -> list[str]:
    """The old key gives what it owns to the new one. Names of what was shared."""
    shared = []
    for address in addresses:
        with contextlib.suppress(NoAgentError):
            with connect(address, name) as client:
                for row in client.ask(ListApplications())["applications"]:
                    if row["owner"] == old.hex():
                        client.ask(ShareApplication(row["name"], new.hex()))
                        shared.append(str(row["name"]))
            return shared
    raise OperationFailed(
        f"The key is changed, but no agent answered: share what the old one owns yourself:  agiledart share APP {new.hex()} "
        f"--identity {name}"
    )


@click.command(short_help="Copy the network's authority key to a safe place.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--authority", is_flag=True, help="The authority's key; it must be said, for who has it can let anybody in."
)
@click.option(
    "--remove",
    is_flag=True,
    help="Leave none in the state directory: then this node signs nothing from its next start on.",
)
@state_dir_option
@output_option
def export(file: Path, authority: bool, remove: bool, state_dir: Path | None, output: str) -> None:
    """Copy the network's authority key to FILE, which only you can read: a copy for a safe, or with --remove the only one.

    \b
    Example:
      agiledart identity export --authority /media/stick/authority.key
      agiledart identity export --authority /media/stick/authority.key --remove

    The network runs without it. Tokens, bans and renewals are signed by an agent that has it: put it back as authority.key into
    the state directory of any agent of the network, 0600, and start that again. A network whose authority key is lost lets nobody
    new in.
    """
    from agiledart_agent.identity.rotation import export_authority

    if not authority:
        raise ConfigurationError(
            "Say --authority: it is the network's own key that is copied, and nothing else can be."
        )
    export_authority(directory(state_dir), file, remove=remove)
    if output == "json":
        print_json({"file": str(file), "removed": remove})
        return
    print_message(f"Wrote {file}; only you can read it.", colour=GOOD)
    if remove:
        print_message(
            "It is gone from the state directory; a running agent has it in memory until it is started again."
        )
