"""Experiment `mopa-hosts`: MOPA by messages among hosts, with delay, loss and dead nodes, beside a central search and springs.

Rizou et al., algorithm 1 and figures 3 and 4: trees of twelve vertices. All rates are redrawn, or all operators start at the sink.
Each host knows 86 nodes at most; the coordinator moves an instance only when that gains 5 % by measured delays.
"""

from statistics import median

from agiledart_experiments.placement.mopa_world import MopaCounts, MopaNodes, MopaWorld, usage_of
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import NetworkDescription, node_id_of_name
from agiledart_placement.files.topology_file import joined_request
from agiledart_placement.instances.operator_trees import LARGE, OperatorTree, operator_tree, tree_topology
from agiledart_placement.latency_space.embedding import positions_of
from agiledart_placement.latency_space.mopa import MopaRelaxation
from agiledart_placement.latency_space.mopa_exact import solve_exactly
from agiledart_placement.latency_space.points import Point
from agiledart_placement.latency_space.space_graph import SpaceGraph
from agiledart_placement.latency_space.springs import relax
from agiledart_placement.problem.network_view import TableNetwork
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import HostState

SIZES: dict[int, tuple[int, int]] = {226: (20, 300), 10_000: (10, 100)}
"""Nodes → trees, small and as published or more."""

STARTS = ("rates redrawn", "all at the sink")


class _HostTrial:
    """One tree before and after its rates were redrawn."""

    def __init__(self, nodes: MopaNodes, draw: RandomStream) -> None:
        self._nodes = nodes
        tree = operator_tree(LARGE, len(nodes.places), draw)
        self._ends = [int(name[1:]) if name else -1 for name in tree.nodes]
        for node in self._ends:
            if node >= 0:
                nodes.is_dead[node] = False
        self.before, self.after = (self._graph(tree, draw) for _ in range(2))

    def _graph(self, tree: OperatorTree, draw: RandomStream) -> SpaceGraph:
        ends = [name for name in tree.nodes if name]
        ids = {name: node_id_of_name(name) for name in ends}
        hosts = {node: HostState(node, capacity=2**31, name=name) for name, node in ids.items()}
        positions = {node: self._nodes.places[int(name[1:])] for name, node in ids.items()}
        network = NetworkDescription("ends", hosts, ids, TableNetwork({}, positions))
        problem = Problem(joined_request(network, [tree_topology(tree, draw)]))
        return SpaceGraph(problem, positions_of(problem))

    def started(self, start: str) -> SpaceGraph:
        """Return the graph with new rates and the positions of a start."""
        graph = SpaceGraph(self.after.problem, self.after.positions)
        calm = SpaceGraph(self.before.problem, self.before.positions)
        MopaRelaxation(calm).relax_all()
        for unit in graph.free:
            graph.at[unit] = calm.at[unit] if start == STARTS[0] else graph.at[0]
        return graph

    def mapped(self, at: list[Point], *, sink_only: bool = False) -> list[int]:
        """Return the node of each operator: the nearest living one with room."""
        return [
            end if end >= 0 else self._ends[0] if sink_only else self._with_room(at[unit])
            for unit, end in enumerate(self._ends)
        ]

    def _with_room(self, point: Point) -> int:
        return next(node for node in self._nodes.living_nearest(point, 64) if not self._nodes.is_full[node])

    def usage(self, hosts: list[int]) -> float:
        """Return Σ rate × real delay."""
        return usage_of(self._nodes, self.after.links, hosts)


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each size and start."""
    rows = []
    for count, (few, many) in SIZES.items():
        nodes = MopaNodes(settings.seed, count)
        draw = RandomStream(settings.seed, "mopa-hosts", count)
        trials = []
        for number in range(many if settings.is_paper else few):
            if number % 20 == 0:
                settings.progress(f"{count} nodes: tree {number + 1}")
            trials.append(_HostTrial(nodes, draw))
        rows += [_row(nodes, count, start, trials, draw) for start in STARTS]
    goals = []
    for row in rows:
        where = f"{row['nodes']} nodes, {row['start']}"
        goals += [
            Goal(f"usage within 5 % of the central search in the median, {where}", row["usage_to_central"] <= 1.05),
            Goal(f"messages ≤ 10 % of springs', {where}", row["share_of_springs"] <= 0.1),
            Goal(f"nearest_recall ≥ 0.9, {where}", row["nearest_recall"] >= 0.9),
        ]
    notes = (
        "messages: positions between hosts, repeated ones included; springs: the same starts without loss, central",
        "published: MOPA 0 to 28 messages, springs 64 to 365",
    )
    return ExperimentReport(
        {"vertices": LARGE, "trees": {r["nodes"]: r["trees"] for r in rows}}, tuple(rows), tuple(goals), notes
    )


def _row(nodes: MopaNodes, count: int, start: str, trials: list[_HostTrial], draw: RandomStream) -> Row:
    counts: list[MopaCounts] = []
    to_central, to_exact, springs = [], [], []
    for trial in trials:
        graph = trial.started(start)
        hosts = trial.mapped(graph.at, sink_only=start == STARTS[1])
        world = MopaWorld(nodes, graph.links, hosts, graph.free, list(graph.at), draw)
        counts.append(world.run())
        central, exact = trial.started(start), trial.started(start)
        MopaRelaxation(central).relax_all()
        solve_exactly(exact)
        to_central.append(world.usage() / trial.usage(trial.mapped(central.at)))
        to_exact.append(world.usage() / trial.usage(trial.mapped(exact.at)))
        springs.append(relax(trial.started(start))[0])
    messages = [counted.messages for counted in counts]
    recalls = [recall for counted in counts for recall in counted.recalls]
    questions = [number for counted in counts for number in counted.questions]
    mean = sum(messages) / len(messages)
    return {
        "nodes": count,
        "start": start,
        "trees": len(trials),
        "messages_mean": round(mean, 2),
        "messages_max": max(messages),
        "share_of_springs": round(mean / (sum(springs) / len(springs)), 4),
        "moves_mean": round(sum(counted.moves for counted in counts) / len(counts), 2),
        "asks_mean": round(sum(counted.asks for counted in counts) / len(counts), 1),
        "usage_to_central": round(median(to_central), 4),
        "usage_to_exact": round(median(to_exact), 4),
        "nearest_recall": round(sum(recalls) / len(recalls), 4),
        "nearest_questions": round(sum(questions) / len(questions), 2),
    }
