"""`agiledart identity renew|rotate|operator|export`: renew memberships, change keys, copy the network's authority key."""

import contextlib
import time
from pathlib import Path

import click

from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, WATCH, duration, output_option, plural, print_json, print_message
from agiledart_cli.verb_connection import connect
from agiledart_control.errors import NoAgentError
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_node.wire.commands import ListApplications, RenewUserMembership, ShareApplication

state_dir_option = click.option(
    "--state-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="State directory of the node.",
)


def directory(given: Path | None) -> Path:
    """Return the given state directory, else the default one."""
    from agiledart_agent.settings import default_state_dir

    return (given or default_state_dir()).expanduser().absolute()


@click.command(short_help="Renew a membership.")
@click.argument("name", required=False)
@agent_options
@output_option
def renew(name: str | None, agent: str | None, identity: str | None, output: str) -> None:
    """Renew a membership: that of NAME, an identity stored on this machine, or without NAME that of the agent. An agent with the
    network's authority key or an admin's key signs it. Agents renew their own in the last tenth of its time.

    \b
    Example:
      agiledart identity renew                              (this machine's agent)
      agiledart identity renew work --agent pi1:9464
    """
    if name is None:
        with connect(agent, identity) as client:
            response = client.ask(RenewUserMembership())
        subject = "The agent is"
    else:
        if identity is not None:
            raise ConfigurationError("NAME already says which membership to renew; omit --identity.")
        response = _renew_user(name, agent)
        subject = f"{name} is"
    if output == "json":
        print_json({"name": name or "", "until": response["until"]})
    else:
        print_message(f"{subject} a member for {duration(response['until'] - time.time())} more.", colour=GOOD)


def _renew_user(name: str, agent: str | None) -> dict[str, int]:
    from agiledart_agent.identity.rotation import renew_user
    from agiledart_agent.identity.user_identity import identity_of, kept_addresses

    user = identity_of(name)
    error: Exception = ConfigurationError(f"{name} names no agent to ask. Name one:  --agent HOST:PORT")
    for address in (agent,) if agent else kept_addresses(name):
        try:
            with connect(address, name) as client:
                response = client.ask(RenewUserMembership(user.chain, user.token))
        except NoAgentError as gone:
            error = gone
            continue
        renew_user(name, tuple(bytes.fromhex(link) for link in response["chain"]))
        return {"until": int(response["until"])}
    raise error


@click.command(short_help="Replace a key that may be compromised.")
@click.argument("name", required=False)
@click.option(
    "--token",
    "text",
    metavar="TOKEN|@FILE|-",
    help="Token that admits the new key. Not needed on a node with the authority key.",
)
@state_dir_option
@click.option("--agent", metavar="HOST:PORT", help="Agent to ask for NAME. Default: the agents that the token names.")
@output_option
def rotate(name: str | None, text: str | None, state_dir: Path | None, agent: str | None, output: str) -> None:
    """Replace a key: that of NAME, an identity stored on this machine, or without NAME that of the stopped node here.

    \b
    Example:
      agiledart identity rotate --token @pi2.token          (then start the agent again)
      agiledart identity rotate work --token @new.token

    The old key stays valid until an admin bans it; this command prints how. A node with another key is another node of the ring:
    its logs continue, other nodes replace the fragments that it stored, and you must set its secrets again. Applications with
    delivery="exactly-once" that read or write there wait for the old key: drain the node before, or stop them. The applications
    of NAME are shared with its new key.
    """
    from agiledart_agent.identity.rotation import rotate_node
    from agiledart_agent.identity.tokens import parse_token, read_token

    token = parse_token(read_token(text)) if text else None
    runs: tuple[str, ...] = ()
    aside: Path | None = None
    operator_key = b""
    if name is None:
        keys = rotate_node(directory(state_dir), token)
        old, new, shared, runs, aside = keys.old, keys.new, list[str](), keys.runs, keys.aside
        operator_key = keys.operator
    elif token is None:
        raise ConfigurationError(f"A new key for {name} needs a token that admits it:  --token @FILE")
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
    print_message(f"The new key is {new.hex()}.", colour=GOOD)
    if runs and aside is not None:
        _report_runs(runs, aside)
    if name is not None:
        shared_text = (
            f"{plural(len(shared), 'application')} of the old key {'is' if len(shared) == 1 else 'are'} shared with it"
        )
        print_message(f"{shared_text}; the old key is stored as {name}.old.")
    print_message(f"An admin can ban the old key:  agiledart ban {old.hex()} --reason 'key changed'")
    if operator_key:
        print_message(f"and the old key of the operator:  agiledart ban {operator_key.hex()} --reason 'key changed'")


def _report_runs(runs: tuple[str, ...], aside: Path) -> None:
    """Print what to do about the runs of a node whose key has changed."""
    print_message(
        f"This node took part in {', '.join(runs)}. Parts that other nodes cannot restart wait for the old key. Stop and resubmit:"
    )
    for application in runs:
        print_message(f"  agiledart stop {application} --now", colour=WATCH)
    print_message(
        f"The files of {'that run' if len(runs) == 1 else 'those runs'} are now in {aside}; remove it after they have ended."
    )


def _share(name: str, old: bytes, new: bytes, addresses: tuple[str, ...]) -> list[str]:
    """Share the applications of the old key with the new one, and return their names."""
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
        f"The key is changed, but no agent answered. Share the applications of the old key:  agiledart share APP {new.hex()} "
        f"--identity {name}"
    )


@click.command(short_help="Let a user operate the agent of this machine.")
@click.argument("text", metavar="TOKEN|@FILE|-")
@state_dir_option
@output_option
def operator(text: str, state_dir: Path | None, output: str) -> None:
    """Let the holder of a user's token command at the control socket of this machine's agent, from its next start on.

    \b
    Example:
      agiledart token create --role submitter --output operator.token     (where the network was founded)
      agiledart identity operator @operator.token                         (here; then start the agent again)

    The operator's key signs the commands at the socket, and owns what is submitted there. The agent's own key only hosts. A
    token with another role changes the rights of the same key.
    """
    from agiledart_agent.identity.identity import Identity
    from agiledart_agent.identity.operator_identity import let_operate
    from agiledart_agent.identity.tokens import parse_token, read_token

    grant = let_operate(Identity.read(directory(state_dir)), parse_token(read_token(text)))
    if output == "json":
        print_json({"role": grant.role, "scope": grant.scope, "key": grant.key.hex(), "until": grant.not_after})
        return
    of = f" of {grant.scope}" if grant.scope else ""
    print_message(f"The operator is a {grant.role}{of} from the next start of the agent on.", colour=GOOD)


@click.command(short_help="Copy the network's authority key to a safe place.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--authority", is_flag=True, help="Confirm that you copy the authority key; its holder can admit any member."
)
@click.option(
    "--remove",
    is_flag=True,
    help="Remove it from the state directory; this node signs nothing after its next start.",
)
@state_dir_option
@output_option
def export(file: Path, authority: bool, remove: bool, state_dir: Path | None, output: str) -> None:
    """Copy the network's authority key to FILE, which only you can read: a copy for a safe, or with --remove the only one.

    \b
    Example:
      agiledart identity export --authority /media/stick/authority.key
      agiledart identity export --authority /media/stick/authority.key --remove

    The network runs without it. An agent needs the key to sign tokens and renewals: copy it as authority.key (mode 0600)
    into the state directory of any agent of the network, and restart that agent. A network whose authority key is lost admits no
    new members.
    """
    from agiledart_agent.identity.rotation import export_authority

    if not authority:
        raise ConfigurationError("Add --authority: this command copies the network's authority key only.")
    export_authority(directory(state_dir), file, remove=remove)
    if output == "json":
        print_json({"file": str(file), "removed": remove})
        return
    print_message(f"Wrote {file}; only you can read it.", colour=GOOD)
    if remove:
        print_message(
            "The key is removed from the state directory; a running agent has it in memory until its restart."
        )
