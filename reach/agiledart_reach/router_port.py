"""Port at the router by UPnP, asked for by libp2p's manager, renewed, and given back at the end."""

from collections.abc import Callable
from contextlib import suppress

import trio
from libp2p.discovery.upnp.upnp import UpnpManager

from agiledart_reach.messages import PortMapped, ReachFailed, ReachMessage

RENEW_SECONDS = 600.0
"""Routers forget mappings when they start again; libp2p asks for one without an end."""

GIVE_BACK_SECONDS = 3.0

NO_ROUTER = (
    "no router answered by UPnP with a public address;"
    " switch UPnP on there, forward the port by hand, or use another node as relay"
)


def outside_address(external_ip: str, port: int) -> str:
    """Return HOST:PORT of an outside address."""
    return f"[{external_ip}]:{port}" if ":" in external_ip else f"{external_ip}:{port}"


async def keep_port(port: int, report: Callable[[ReachMessage], None]) -> None:
    """Map the port for as long as this runs; report each change once. When cancelled, take the mapping back."""
    manager = UpnpManager()
    mapped = ""
    try:
        while True:
            now = ""
            if await manager.discover() and await manager.add_port_mapping(port):
                now = outside_address(str(manager.get_external_ip()), port)
            if now and now != mapped:
                report(PortMapped(now))
            elif not now:
                report(ReachFailed("upnp", NO_ROUTER))
            mapped = now
            await trio.sleep(RENEW_SECONDS)
    finally:
        if mapped:
            with trio.move_on_after(GIVE_BACK_SECONDS, shield=True), suppress(Exception):
                await manager.remove_port_mapping(port)
