"""The real paths of rows, and why a stage is not on its expected node: for people."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.display_names import display_names
from agiledart_node.wire.formation_messages import NodeLoad
from agiledart_placement.problem.request import Obstacle, Placement

MAX_DATA_PATHS = 16
"""Pairs of a source and a sink that are shown."""


def data_paths_of(
    kinds: Sequence[str], edges: Sequence[tuple[int, int]], hosts: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Return one path for each source and each sink that its rows reach, along the longest chain of stages between them.

    Args:
        kinds: of each stage, in topological order: `source`, `sink` or `stage`.
        hosts: names of the nodes of each stage's instances.

    Returns:
        Places that rows pass in turn; several nodes of one stage are separated by commas.
    """
    places = [",".join(dict.fromkeys(names)) for names in hosts]
    down: dict[int, list[int]] = {}
    for upstream, downstream in edges:
        down.setdefault(upstream, []).append(downstream)
    paths = []
    for source in (stage for stage, kind in enumerate(kinds) if kind == "source"):
        longest: dict[int, tuple[int, ...]] = {source: (source,)}
        for stage in range(source, len(kinds)):
            for below in down.get(stage, ()) if stage in longest else ():
                if len(longest.get(below, ())) <= len(longest[stage]):
                    longest[below] = (*longest[stage], below)
        for sink, chain in sorted(longest.items()):
            if kinds[sink] == "sink":
                passed = [places[stage] for stage in chain]
                paths.append([at for at, before in zip(passed, ["", *passed], strict=False) if at != before])
    return paths[:MAX_DATA_PATHS]


def reasons_of(
    placement: Placement,
    loads: Mapping[NodeId, tuple[Peer, NodeLoad]],
    stages: int,
    balanced_shares: Mapping[NodeId, int],
) -> tuple[str, ...]:
    """Return for each stage why its instances are not on the node of its path; empty where they are and no planner was asked.

    Args:
        placement: of all instances.
        loads: reports of the nodes, from before this placement.
        stages: their number.
        balanced_shares: instances of all applications from which on other nodes are preferred.
    """
    reasons: list[dict[str, bool]] = [{} for _ in range(stages)]
    names_by_id = display_names(tuple(peer for peer, _ in loads.values()))
    for (stage, _), (home, why) in placement.away.items():
        held, capacity = (loads[home][1].operators, loads[home][1].capacity) if home in loads else (0, 0)
        own = sum(node == home for node in placement.nodes.values())
        name = names_by_id.get(home, home.short)
        use = NodeUse(held, own, capacity, balanced_shares.get(home, 0))
        reasons[stage][_sentence(why, name, use)] = True
    return tuple("; ".join(why) or placement.reasons.get(stage, "") for stage, why in enumerate(reasons))


class NodeUse(NamedTuple):
    """Instances on a node: `held` before, `own` of this application, `capacity`, and `balanced`: its even share."""

    held: int
    own: int
    capacity: int
    balanced: int

    @property
    def text(self) -> str:
        """Count as text, with this application's part where others are there, too."""
        parts = [
            f"{self.held} of other applications" if self.held else "",
            f"{self.own} of this one" if self.own else "",
        ]
        return " and ".join(part for part in parts if part) or "none"


def _sentence(why: Obstacle, home: str, use: NodeUse) -> str:
    match why:
        case Obstacle.UNKNOWN:
            return f"{home} does not answer"
        case Obstacle.LEAVING:
            return f"{home} is leaving"
        case Obstacle.CLOCK:
            return f"the clock of {home} is wrong"
        case Obstacle.VERSION:
            return f"{home} runs another version of agiledart"
        case Obstacle.FULL:
            return f"{home} is full: it has {use.text}, and takes {use.capacity} instances"
        case Obstacle.TAG:
            return f"{home} lacks a capability that it requires"
        case Obstacle.RULE:
            return f"a rule of the application forbids {home}"
        case Obstacle.BALANCE:
            return f"{home} has {use.text}: from {use.balanced} instances on, nodes with fewer are taken first"
        case Obstacle.SHARED:
            return f"{home} runs another step of this application"
        case Obstacle.COPIES:
            return "each instance runs on a separate node"
