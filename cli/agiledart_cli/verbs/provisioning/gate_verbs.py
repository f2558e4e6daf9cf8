"""`agiledart provision run`, `pause`, `resume` and `release`: gates, which lease machines for a mesh."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import click

from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, duration, output_option, print_json, print_message
from agiledart_cli.verb_connection import connect
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_node.wire.lease_messages import OrderGate


@click.command(short_help="Run a gate: lease machines for the work that waits.")
@click.argument("file", metavar="GATE.toml", type=click.Path(dir_okay=False))
@click.option("--folder", metavar="DIR", help="Folder of the gate's ledger. Default: beside the agents' state.")
@click.option("--release", is_flag=True, help="At the end drain and release all machines first.")
@click.option("--example", is_flag=True, help="Write an example to GATE.toml, and end.")
@agent_options
@output_option
def run(
    file: str, folder: str | None, release: bool, example: bool, agent: str | None, identity: str | None, output: str
) -> None:
    """Run a gate for the mesh of an agent. It leases a machine while work waits for capacity, and releases it at the end of its
    paid time, drained and empty. `max_hosts` and `max_spend` bound what it leases.

    \b
    Example:
      agiledart provision run --example gate.toml
      agiledart provision run gate.toml
      agiledart provision run gate.toml --agent pi1:7400 --identity ops

    The gate gives its orders with your identity: an admin's, or one of the role `provisioner`.
    Its mode is `advise` until the file says `act`. The policies `btu` and `threshold` also decide how many instances stages with
    limits have; that needs an admin's identity. These stages do not scale by themselves until the gate ends.
    """
    from agiledart_cli.gate.gate_file import EXAMPLE, read_gate_file

    if example:
        try:
            with Path(file).open("x") as stream:
                stream.write(EXAMPLE)
        except OSError as error:
            raise OperationFailed(f"{file} cannot be written: {error.strerror}") from None
        print_message(f"wrote {file}")
        return
    content = read_gate_file(Path(file))
    asyncio.run(
        _run(content, folder, agent or content.agent or None, identity or content.identity or None, release, output)
    )


async def _run(
    file: Any, folder: str | None, agent: str | None, identity: str | None, releases: bool, output: str
) -> None:
    import msgspec

    from agiledart_cli.gate.gate_disk import GateDisk
    from agiledart_cli.gate.mesh_link import MeshLink
    from agiledart_cli.gate.provider_catalogue import provider_named
    from agiledart_cli.gate.running_gate import RunningGate
    from agiledart_kernel.instants import SECOND
    from agiledart_provisioning.providers.provider import ProviderCallError, offer_named

    provider = provider_named(file.provider, file.options)
    try:
        offers = await provider.offers()
    except ProviderCallError as error:
        raise OperationFailed(
            f"The provider {file.provider} does not say what it leases: {error}. Nothing is leased. Check credential and options."
        ) from None
    offer = offer_named(offers, file.options.get("offer", offers[0].name))
    settings = msgspec.structs.replace(
        file.settings, offer=offer.name, price=offer.price, btu_ns=offer.btu_s * SECOND, capacity=offer.capacity
    )
    settings.validate()
    if settings.mode == "off":
        print_message('mode = "off": the gate does nothing.')
        return
    disk = GateDisk(Path(folder) if folder else _default_folder() / file.name)
    try:
        mesh = MeshLink(agent, identity, file.name, file.zone, file.policy != "hosts")
        network = await asyncio.to_thread(mesh.network)
        print_decision = _print_json_line if output == "json" else None
        loop = asyncio.get_running_loop()
        end: asyncio.Future[None] = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _end, end)
        gate = RunningGate(
            file, settings, provider, disk, mesh, network, time.time_ns() & 0xFFFF_FFFF, _print_line, print_decision
        )
        _print_line(
            f"gate {file.name}: {settings.mode}, {file.provider}, {offer.name} at {offer.price / 1e6:g} for {duration(offer.btu_s)}"
        )
        await gate.run(end, releases=releases)
        if live := gate.machine.ledger.live():
            _print_line(
                f"{len(live)} leases go on. Start the gate again, or the machines end themselves "
                f"{duration((settings.btu_ns + file.grace_ns) / 1e9)} after their last renewal."
            )
    finally:
        disk.close()


def _end(end: "asyncio.Future[None]") -> None:
    """Ask the gate to end; a second signal ends the process."""
    if end.done():
        raise KeyboardInterrupt
    end.set_result(None)


def _default_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.environ.get("HOME", "/"), ".local", "state")
    return Path(base) / "agiledart-gates"


def _print_json_line(line: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(line).decode())


def _print_line(line: str) -> None:
    print_message(f"{time.strftime('%H:%M:%S')} {line}")


def _order(order: str, host: str, agent: str | None, identity: str | None, output: str, text: str) -> None:
    with connect(agent, identity) as client:
        answer = client.ask(OrderGate(order, host))
    if output == "json":
        print_json({"order": order, "host": host, "gates": answer["taken"]})
        return
    print_message(f"{', '.join(answer['taken'])} {text}", colour=GOOD)


def _order_to_all(order: str, text: str, short_help: str, help_text: str) -> click.Command:
    """Return the verb of an order that all gates carry out."""

    @click.command(order, short_help=short_help, help=help_text)
    @agent_options
    @output_option
    def verb(agent: str | None, identity: str | None, output: str) -> None:
        _order(order, "", agent, identity, output, text)

    return verb


pause = _order_to_all(
    "pause",
    "will open no lease",
    "Have all gates open no new lease.",
    """Have all gates open no new lease, also after their restart. Machines that are leased already go on as before.

    \b
    Example:
      agiledart provision pause
    """,
)
resume = _order_to_all(
    "resume",
    "will open leases again",
    "Have all gates open leases again.",
    """Have all gates open leases again after `pause`.

    \b
    Example:
      agiledart provision resume
    """,
)


@click.command(short_help="Drain and release a leased machine now.")
@click.argument("host", metavar="HOST")
@agent_options
@output_option
def release(host: str, agent: str | None, identity: str | None, output: str) -> None:
    """Drain a leased machine and release it at once, outside of its window too. HOST is a lease, a node or a machine of
    `provision status`; `all` stands for all of them.

    \b
    Example:
      agiledart provision release gw-1764348000
      agiledart provision release all
    """
    if not host:
        raise ConfigurationError("HOST is empty. `all` stands for all leased machines.")
    _order("release", "" if host == "all" else host, agent, identity, output, "will drain and release it")
