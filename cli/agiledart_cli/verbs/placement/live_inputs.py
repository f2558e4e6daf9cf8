"""Inputs of `agiledart place` that are no JSON files: an agent's network, a running application, a topology in Python."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from agiledart_cli.output import WATCH, print_message
from agiledart_cli.verb_connection import connect
from agiledart_kernel.errors import ConfigurationError
from agiledart_node.forming.network_of_loads import LIVE
from agiledart_node.wire.commands import ExplainPlacement, Nodes
from agiledart_placement.files.network_file import NetworkDescription, read_network
from agiledart_placement.files.topology_file import TopologyDescription, read_topology


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


def is_application(text: str) -> bool:
    """Report whether `--topology` names an application of an agent: neither a file nor FILE:NAME."""
    return ":" not in text and not text.endswith(".json") and not Path(text).exists()


def running_topology(name: str, agent: str | None, identity: str | None) -> TopologyDescription:
    """Return a running application with its measured rates and times; sources, sinks and pinned steps stay where they are."""
    with connect(agent, identity) as client:
        response: dict[str, Any] = client.ask(ExplainPlacement(name))
    for note in response["notes"]:
        print_message(f"note: {note}", colour=WATCH)
    return read_topology(response["topology"], name)


def built_topology(target: str, settings: tuple[str, ...], network: NetworkDescription) -> TopologyDescription:
    """Return a topology in Python with the figures that its builder expects.

    Sources and sinks run where `at=` or their `@NODE` says.
    """
    from agiledart_control.targets import load_target
    from agiledart_dataflow.plan.stages import plan_stages
    from agiledart_executor.user_code.parameter import parse_settings
    from agiledart_executor.user_code.user_builder import build
    from agiledart_node.live_placement.measured_topology import measured_topology

    specification = build(load_target(target), parse_settings(settings), Path.cwd()).specification()
    plan = plan_stages(specification)
    measured = measured_topology(specification.name, plan, specification, {}, {}, network.ids)
    on = list(measured.description.on)
    for stage in plan.stages:
        connector = specification.steps[stage.steps[0]].connector
        at = stage.at or ("" if connector is None else connector.at)
        if at in network.ids:
            on[stage.index] = (at,)
        elif at or stage.kind != "operator":
            place = f"{at}, which is no node here" if at else "no node (at=)"
            print_message(f"note: {stage.name} names {place}: it may run anywhere", colour=WATCH)
    for note in measured.notes:
        print_message(f"note: {note}", colour=WATCH)
    return replace(measured.description, on=tuple(on))
