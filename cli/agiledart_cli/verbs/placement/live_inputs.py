"""Inputs of `agiledart place` that an agent has: its network by measured round trips, `--network live`."""

from typing import Any

from agiledart_cli.control_client import connect
from agiledart_cli.output import WATCH, print_message
from agiledart_kernel.errors import ConfigurationError
from agiledart_node.forming.network_of_loads import LIVE
from agiledart_node.wire.commands import Nodes
from agiledart_placement.files.network_file import NetworkDescription, read_network


def live_network(agent: str | None, identity: str | None, save_as: str | None) -> NetworkDescription:
    """Return the network of an agent, print what it did not measure, and write it to a file if one is named.

    Raises:
        ConfigurationError: the agent knows no network, because it runs an older version, or a file cannot be written.
    """
    from agiledart.placement.loading import save_document

    with connect(agent, identity) as client:
        response: dict[str, Any] = client.ask(Nodes(network=True))
    document = response.get("network")
    if document is None:
        raise ConfigurationError("--network live: this agent runs an older version, which does not report its network.")
    for note in response.get("notes", ()):
        print_message(f"note: {note}", colour=WATCH)
    if save_as:
        save_document(save_as, document)
        print_message(f"Wrote {save_as}: {len(document['nodes'])} nodes.")
    return read_network(document, LIVE)
