"""Gallery of placement problems from seeds, each with its optimum or the best bound known, and how that was found."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from agiledart.placement.example import EXAMPLE_NETWORK, EXAMPLE_TOPOLOGY
from agiledart.placement.loading import load_network, measured_network
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import NetworkDescription, read_network
from agiledart_placement.files.topology_file import TOPOLOGY_FORMAT, TopologyDescription, read_topology
from agiledart_placement.instances.compute_continuum import loaded_topology, operation_graph, supervisor_bed
from agiledart_placement.instances.delay_tables import continents
from agiledart_placement.instances.manufacturing import factory, manufacturing
from agiledart_placement.instances.operator_trees import SMALL, operator_tree, tree_topology
from agiledart_placement.instances.random_delays import CHAIN, FAT, equal_nodes, unit_operators
from agiledart_placement.instances.tag_and_count import eight_workers, tag_and_count

Pair = tuple[NetworkDescription, TopologyDescription]
PLANETLAB = "network_rtt/planetlab490_rtt_ms.parquet"
NODES = 226
LOAD = 230.0
PROGRAMME = "odp with HiGHS 1.16"
TREE = "min-plus programme over the tree"
DAY = "2026-11-28"


@dataclass(frozen=True, slots=True)
class GalleryProblem:
    """One problem of the gallery.

    Attributes:
        about: one line.
        objective: that `value` and `bound` are of.
        make: returns network and topology. Raises ConfigurationError when data or a package is missing.
        value: best known.
        bound: that no placement beats; equal to `value`: the optimum is proven.
        how, when: method and day of `value` and `bound`.
    """

    about: str
    objective: str
    make: Callable[[], Pair]
    value: float
    bound: float | None
    how: str
    when: str = DAY


def _example() -> Pair:
    return read_network(EXAMPLE_NETWORK, "example"), read_topology(EXAMPLE_TOPOLOGY, "example")


def _tag_and_count() -> Pair:
    return eight_workers(1), tag_and_count()


def _scalable(kind: str, operators: int) -> Callable[[], Pair]:
    return lambda: (equal_nodes(20, 4, 1), unit_operators(kind, operators, 20))


def _bed(name: str) -> Callable[[], Pair]:
    return lambda: (supervisor_bed(1), loaded_topology(name, operation_graph(name, 1), LOAD))


def _tree() -> TopologyDescription:
    draw = RandomStream(1, "gallery", "tree")
    return tree_topology(operator_tree(SMALL, NODES, draw), draw)


def _planetlab(time_slice: int) -> Callable[[], Pair]:
    def make() -> Pair:
        root = os.environ.get("AGILEDART_DATA")
        path = Path(root, PLANETLAB) if root else None
        if path is None or not path.is_file():
            raise ConfigurationError(f"this problem needs {PLANETLAB} in the folder that AGILEDART_DATA names.")
        return measured_network(path, nodes=NODES, time_slice=time_slice), _tree()

    return make


def _zoo(name: str, ends: tuple[str, str, str]) -> Callable[[], Pair]:
    def make() -> Pair:
        try:
            import topohub
        except ImportError:
            raise ConfigurationError("this problem needs the package topohub: pip install topohub") from None
        path = Path(topohub.__file__).parent / "data" / "topozoo" / f"{name}.json"
        network = load_network(path, {"slots": 2})
        return replace(network, file=name), _join_of_two(*ends)

    return make


def _join_of_two(left: str, right: str, sink: str) -> TopologyDescription:
    """Return two filtered sources that are joined and aggregated, pinned to three nodes of a network."""
    document = {
        "format": TOPOLOGY_FORMAT,
        "name": "join-of-two",
        "operators": [
            {"name": "left", "on": [left], "rate": 400},
            {"name": "right", "on": [right], "rate": 250},
            {"name": "filter-left", "selectivity": 0.4, "execution_ms": 1},
            {"name": "filter-right", "selectivity": 0.6, "execution_ms": 1},
            {"name": "join", "selectivity": 0.5, "execution_ms": 2},
            {"name": "count", "selectivity": 0.1, "execution_ms": 1},
            {"name": "sink", "on": [sink]},
        ],
        "streams": [
            {"from": "left", "to": "filter-left", "bytes": 120},
            {"from": "right", "to": "filter-right", "bytes": 80},
            {"from": "filter-left", "to": "join", "bytes": 120},
            {"from": "filter-right", "to": "join", "bytes": 80},
            {"from": "join", "to": "count", "bytes": 160},
            {"from": "count", "to": "sink", "bytes": 40},
        ],
    }
    return read_topology(document, "join-of-two")


GALLERY: dict[str, GalleryProblem] = {
    "example": GalleryProblem(
        "four operators on four nodes, as --example writes", "response", _example, 38.0, 38.0, "enumeration"
    ),
    "tag-and-count": GalleryProblem(
        "12 executors on 8 workers (Cardellini et al., fig. 4)",
        "response",
        _tag_and_count,
        35.2845636675743,
        35.2845636675743,
        PROGRAMME,
    ),
    "tag-and-count-available": GalleryProblem(
        "the same for availability", "availability", _tag_and_count, 0.0, 0.0, PROGRAMME
    ),
    "chain-10": GalleryProblem(
        "10 operators on 20 equal nodes (Cardellini et al., table 2)",
        "response",
        _scalable(CHAIN, 10),
        10019.94871977453,
        10018.485016645569,
        PROGRAMME,
    ),
    "fat-10": GalleryProblem(
        "8 parallel operators between source and sink, 20 equal nodes",
        "response",
        _scalable(FAT, 10),
        3021.412422903495,
        3012.1003029794438,
        PROGRAMME,
    ),
    "test-bed-m2": GalleryProblem(
        "12 instances on 11 supervisors (Ecker et al., T-M2)",
        "score",
        _bed("M2"),
        1.1818204815868085,
        1.1818204815868085,
        PROGRAMME,
    ),
    "test-bed-r2": GalleryProblem(
        "12 instances (T-R2)", "score", _bed("R2"), 0.795456845223172, 0.33737806136146287, PROGRAMME
    ),
    "test-bed-r3": GalleryProblem(
        "22 instances (T-R3)", "score", _bed("R3"), 0.6592125112565247, 0.09363387716588162, PROGRAMME
    ),
    "manufacturing": GalleryProblem(
        "twelve steps of a factory on 3 gateways, a server and 3 hosts (Hochreiner et al.)",
        "usage",
        lambda: (factory(1), manufacturing()),
        381.0852959169749,
        381.0852959169749,
        PROGRAMME,
    ),
    "continents": GalleryProblem(
        "a tree of 6 on 226 nodes in three clusters",
        "usage",
        lambda: (continents(1, 0.175), _tree()),
        21.455057392478135,
        21.455057392478135,
        TREE,
    ),
    "planetlab-1": GalleryProblem(
        "the same tree on slice 1 of PlanetLab (Rizou et al.)",
        "usage",
        _planetlab(1),
        33.789216954635926,
        33.789216954635926,
        TREE,
    ),
    "planetlab-7": GalleryProblem(
        "the same tree on slice 7", "usage", _planetlab(7), 33.63692661419395, 33.63692661419395, TREE
    ),
    "abilene": GalleryProblem(
        "a join of two sources on 11 nodes of the Topology Zoo, two slots each",
        "usage",
        _zoo("Abilene", ("New York", "Los Angeles", "Seattle")),
        298.7956547339692,
        298.7956547339692,
        PROGRAMME,
    ),
    "nsfnet": GalleryProblem(
        "the same on 13 nodes",
        "usage",
        _zoo("Nsfnet", ("BARRnet, Palo Alto", "Cornell Theory Center, Ithaca NY", "SURANET, Georgia Tech, Atlanta")),
        343.96580348035013,
        343.96580348035013,
        PROGRAMME,
    ),
    "geant": GalleryProblem(
        "the same on 37 nodes",
        "usage",
        _zoo("Geant2012", ("PT", "FI", "DE")),
        231.33543820222698,
        231.33543820222698,
        PROGRAMME,
    ),
}


def gallery_problem(name: str) -> GalleryProblem:
    """Return the problem of this name. Raises ConfigurationError, which suggests a similar name."""
    if name not in GALLERY:
        close = get_close_matches(name, GALLERY, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise ConfigurationError(f"gallery {name!r}: use one of {', '.join(GALLERY)}.{meant}")
    return GALLERY[name]
