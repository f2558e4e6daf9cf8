"""Nodes of pinned stages: lookup of the words after `@`."""

from agiledart_dataflow.plan.paths import MODES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext, did_you_mean
from agiledart_node.forming.blueprint import Blueprint
from agiledart_node.records.records import Records

MAX_LISTED = 20
"""Names that a refusal lists."""


async def pinned_nodes(context: NodeContext, records: Records, blueprint: Blueprint) -> dict[int, Peer]:
    """Return stage → the node that must run it.

    Raises:
        CommandRefused: no node has this name, or one in `paths`; the text lists the known names.
    """
    pinned: dict[int, Peer] = {}
    for stage, word in enumerate(blueprint.pins):
        if word is not None:
            pinned[stage] = await node_at(context, records, word, blueprint.stages[stage].name)
    for step, name in blueprint.relayed_by:
        _check_relay(context, step, name)
    return pinned


def _check_relay(context: NodeContext, step: str, name: str) -> None:
    """Raise CommandRefused unless a node has this name from `paths`."""
    names = sorted({peer.name for peer in (context.me, *context.known()) if peer.name})
    if name not in names:
        more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        raise CommandRefused(
            f"{step}: no node has the name {name!r} that paths contains.{did_you_mean(name, [*MODES, *names])} "
            f"Nodes: {', '.join(names[:MAX_LISTED])}{more}",
            2,
        )


async def node_at(context: NodeContext, records: Records, word: str, step: str) -> Peer:
    """Return the node that a word selects.

    An empty word: this node; else a node's name, address or id, else any node of the zone or host.
    """
    if not word:
        return context.me
    known = context.known()
    named = [peer for peer in known if peer.name == word]
    if len(named) > 1:
        ids = ", ".join(peer.node.hex[:12] for peer in named)
        raise CommandRefused(f"{step}: {len(named)} nodes have the name {word}. Use the beginning of an id: {ids}", 2)
    if named:
        return named[0]
    # A node that this one does not know may still have registered its name on the ring.
    registered = await records.node_named(word)
    if registered is not None:
        return registered
    at_address = [peer for peer in known if peer.address == word]
    if at_address:
        return at_address[0]
    by_id = [peer for peer in known if len(word) >= 8 and peer.node.hex.startswith(word.lower())]
    if len(by_id) == 1:
        return by_id[0]
    of_zone = [peer for peer in known if word in (peer.zone, peer.host)]
    if of_zone:
        return of_zone[0]
    names = sorted({peer.name for peer in known if peer.name})
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    raise CommandRefused(
        f"{step}: no node, zone or host is called {word!r}.{did_you_mean(word, names)} "
        f"Nodes: {', '.join(names[:MAX_LISTED])}{more}",
        2,
    )


def fed_sinks(blueprint: Blueprint, pinned: dict[int, Peer]) -> dict[NodeId, tuple[Peer, tuple[Peer, ...]]]:
    """Return sink node → (its peer, the source nodes whose records reach a sink on it, sorted by id)."""
    wanted: dict[NodeId, tuple[Peer, dict[NodeId, Peer]]] = {}
    for source in blueprint.sources:
        below = blueprint.reached_from(source)
        for sink in blueprint.sinks:
            if sink in below:
                entry = wanted.setdefault(pinned[sink].node, (pinned[sink], {}))
                entry[1][pinned[source].node] = pinned[source]
    return {sink: (peer, tuple(sources[node] for node in sorted(sources))) for sink, (peer, sources) in wanted.items()}
