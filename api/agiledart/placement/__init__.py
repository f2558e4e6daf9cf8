"""Placement off line: load a network and topologies, place with any strategy, evaluate, compare. No agent is needed.

network, topology = load_network("network.json"), load_topology("topology.json")
request = joined_request(network, [topology])
result = place(request, "hybrid", PlacementOptions(Objective("response")))
print(result.evaluation.value, result.document()["placement"])
"""

from agiledart.placement.comparing import Comparison, compare
from agiledart.placement.loading import load_network, load_topologies, load_topology, save_document
from agiledart.placement.running import PlacementOptions, PlacementResult, place
from agiledart_placement.evaluation.evaluator import Evaluation, PlacementMetrics, evaluate
from agiledart_placement.files.network_file import NetworkDescription, network_document, read_network
from agiledart_placement.files.topology_file import (
    TopologyDescription,
    joined_request,
    read_topology,
    topology_document,
)
from agiledart_placement.problem.objective import OBJECTIVES, Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport
from agiledart_placement.problem.strategy import PlacementStrategy
from agiledart_placement.registry import ALL_STRATEGIES

__all__ = [
    "ALL_STRATEGIES",
    "OBJECTIVES",
    "Comparison",
    "Evaluation",
    "NetworkDescription",
    "Objective",
    "Placement",
    "PlacementMetrics",
    "PlacementOptions",
    "PlacementRequest",
    "PlacementResult",
    "PlacementStrategy",
    "Problem",
    "SearchReport",
    "TopologyDescription",
    "compare",
    "evaluate",
    "joined_request",
    "load_network",
    "load_topologies",
    "load_topology",
    "network_document",
    "place",
    "read_network",
    "read_topology",
    "save_document",
    "topology_document",
]
