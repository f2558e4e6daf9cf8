"""Nodes of pinned stages: lookup of the words after `@`."""

from agiledart_dataflow.plan.paths import MODES
from agiledart_dataflow.plan.placement_rules import AT_LABEL
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext, did_you_mean
from agiledart_node.forming.blueprint import Blueprint
from agiledart_node.forming.surveyor import Surveyor
from agiledart_node.records.records import Records

MAX_LISTED = 20
"""Names that a refusal lists."""


async def pinned_nodes(
    context: NodeContext, records: Records, surveying: Surveyor, blueprint: Blueprint
) -> dict[int, Peer]:
    """Return stage → the node that must run it.

    Raises:
        CommandRefused: no node has this name or label, or a name in `paths`; the text lists the known ones.
    """
    pinned: dict[int, Peer] = {}
    for stage, word in enumerate(blueprint.pins):
        name = blueprint.stages[stage].name
        if word is not None and word.startswith(AT_LABEL):
            pinned[stage] = await _labelled(context, surveying, word.removeprefix(AT_LABEL), name)
        elif word is not None:
            pinned[stage] = await node_at(context, records, word, name)
    for step, name in blueprint.relayed_by:
        _check_relay(context, step, name)
    return pinned


async def _labelled(context: NodeContext, surveying: Surveyor, label: str, step: str) -> Peer:
    """Return the nearest node with a label that takes work. Raises CommandRefused."""
    config = context.config
    known = list(context.nearest_of(context.known()))[: config.max_survey]
    loads = await surveying.loads(known, config.report_timeout_ns)
    order = [peer for peer in (context.me, *known) if peer.node in loads]
    labels = sorted({name for _, load in loads.values() for name in load.labels})
    able = [peer for peer in order if label in loads[peer.node][1].labels]
    free = [peer for peer in able if not loads[peer.node][1].is_draining]
    if free:
        return free[0]
    if able:
        raise CommandRefused(
            f"{step}: {able[0].name or able[0].node.short} has the label {label}, and takes no work: it is drained."
        )
    listed = f" Labels: {', '.join(labels[:MAX_LISTED])}" if labels else f" Start one: agiledart agent --label {label}"
    raise CommandRefused(f"{step}: no node has the label {label!r}.{did_you_mean(label, labels)}{listed}", 2)


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
