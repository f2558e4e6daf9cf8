"""Experiment `reconvergence`: messages and migrations until operators are calm again, after all rates changed.

Rizou et al., figures 3 and 4: trees of twelve vertices; all source rates are redrawn. A second start has all operators at the sink.
Messages go to free neighbours: of MOPA for moves of at least 1 ms, of springs for steps of at least 0.1 ms.
"""

from collections.abc import Callable

from agiledart_experiments.placement.planetlab import SLICES, embedded_network, planetlab_slice
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import NetworkDescription
from agiledart_placement.files.topology_file import joined_request
from agiledart_placement.instances.delay_tables import continents
from agiledart_placement.instances.operator_trees import LARGE, OperatorTree, operator_tree, tree_topology
from agiledart_placement.latency_space.embedding import positions_of
from agiledart_placement.latency_space.mapping import SpaceMapping
from agiledart_placement.latency_space.mopa import MopaRelaxation
from agiledart_placement.latency_space.points import NOTIFY_MS, distance
from agiledart_placement.latency_space.space_graph import SpaceGraph
from agiledart_placement.latency_space.springs import SPRING_TOLERANCE_MS, relax, spring_step
from agiledart_placement.problem.problem import Problem

GRAPHS, PAPER_GRAPHS = 25, 500
STARTS = ("rates redrawn", "all at the sink")
MOST_SPRING_STEPS = 200_000
Run = Callable[[SpaceGraph], tuple[int, int]]


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each start and method."""
    graphs = PAPER_GRAPHS if settings.is_paper else GRAPHS
    network = planetlab_slice(SLICES[-1])
    notes = ["published: MOPA 0 to 28 messages, springs 64 to 365, 3.25 % in the mean; 26.8 % fewer migrations"]
    if network is None:
        notes.append("AGILEDART_DATA or pyarrow is missing: measured on a network on paper")
        network = continents(settings.seed, 0.175)
    else:
        network = embedded_network(network, settings.seed)
    counts: dict[tuple[str, str], list[tuple[int, int]]] = {}
    draw = RandomStream(settings.seed, "reconvergence")
    for number in range(graphs):
        if number % 100 == 0:
            settings.progress(f"graph {number + 1} of {graphs}")
        tree = operator_tree(LARGE, len(network.hosts), draw)
        before, after = (_graph(network, tree, draw) for _ in range(2))
        for start in STARTS:
            for name, method in (("mopa", react_mopa), ("springs", react_springs)):
                graph = _started(before, after, start, name)
                counts.setdefault((start, name), []).append(method(graph))
    rows = [_row(start, name, values) for (start, name), values in counts.items()]
    messages = {(row["start"], row["method"]): row["messages_mean"] for row in rows}
    moves = {(row["start"], row["method"]): row["migrations_mean"] for row in rows}
    for row in rows:
        row["share_of_springs"] = round(row["messages_mean"] / messages[row["start"], "springs"], 4)
    goals = (
        *(
            Goal(f"messages ≤ 10 % of springs', {start}", messages[start, "mopa"] <= 0.1 * messages[start, "springs"])
            for start in STARTS
        ),
        Goal("from a bad start also fewer migrations", moves[STARTS[1], "mopa"] < moves[STARTS[1], "springs"]),
    )
    return ExperimentReport({"graphs": graphs, "vertices": LARGE}, tuple(rows), goals, tuple(notes))


def _graph(network: NetworkDescription, tree: OperatorTree, draw: RandomStream) -> SpaceGraph:
    problem = Problem(joined_request(network, [tree_topology(tree, draw)]))
    return SpaceGraph(problem, positions_of(problem))


def _started(before: SpaceGraph, after: SpaceGraph, start: str, method: str) -> SpaceGraph:
    """Return the graph with new rates, its operators where the method had left them, or all at the sink."""
    graph = SpaceGraph(after.problem, after.positions)
    if start == STARTS[1]:
        for unit in graph.free:
            graph.at[unit] = graph.at[0]
        return graph
    calm = SpaceGraph(before.problem, before.positions)
    if method == "mopa":
        MopaRelaxation(calm).relax_all()
    else:
        relax(calm)
    for unit in graph.free:
        graph.at[unit] = calm.at[unit]
    return graph


def react_mopa(graph: SpaceGraph) -> tuple[int, int]:
    """Let all operators react by MOPA; return messages, and changes of hosts on the way."""
    mapping = SpaceMapping(graph)
    mapping.map_all()
    relaxation = MopaRelaxation(graph)
    queue = list(graph.free)
    steps = 0
    while queue and steps < 10_000:
        unit = queue.pop(0)
        steps += 1
        for member in relaxation.step(unit, NOTIFY_MS):
            mapping.map(member)
            queue += [other for other in graph.free_neighbours(member) if other not in queue and other != member]
    return relaxation.messages, mapping.migrations


def react_springs(graph: SpaceGraph) -> tuple[int, int]:
    """Let all operators react as springs; return messages, and changes of hosts on the way."""
    mapping = SpaceMapping(graph)
    mapping.map_all()
    messages = 0
    for _ in range(MOST_SPRING_STEPS):
        is_calm = True
        for unit in graph.free:
            after = spring_step(graph.at[unit], graph.pulls(unit))
            if distance(after, graph.at[unit]) >= SPRING_TOLERANCE_MS:
                graph.at[unit] = after
                messages += len(graph.free_neighbours(unit))
                mapping.map(unit)
                is_calm = False
        if is_calm:
            break
    return messages, mapping.migrations


def _row(start: str, name: str, values: list[tuple[int, int]]) -> Row:
    messages, moves = [m for m, _ in values], [m for _, m in values]
    published = {"mopa": "0 to 28", "springs": "64 to 365"}[name] if start == STARTS[0] else None
    return {
        "start": start,
        "method": name,
        "messages_mean": round(sum(messages) / len(messages), 2),
        "messages_max": max(messages),
        "messages_published": published,
        "migrations_mean": round(sum(moves) / len(moves), 2),
        "migrations_max": max(moves),
    }
