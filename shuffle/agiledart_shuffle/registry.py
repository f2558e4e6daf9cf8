"""Path policies by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.estimates import STATIONARY, EstimateMemory
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.hop_planner import PathPlanner
from agiledart_shuffle.link_indices import KL_EXPLORATION, PAPER_EXPLORATION
from agiledart_shuffle.policies.end_to_end import EndToEnd
from agiledart_shuffle.policies.kl import KlIndex
from agiledart_shuffle.policies.next_hop import NextHop
from agiledart_shuffle.policies.optimal import Optimal
from agiledart_shuffle.policies.shared_prior import SharedPriorIndex
from agiledart_shuffle.policies.thompson import ThompsonIndex
from agiledart_shuffle.policy import LinkIndex, PathPolicy

LOOKAHEAD = "lookahead-"
PAPER = "paper-"


@dataclass(frozen=True, slots=True)
class PathTask:
    """Arguments that a policy is made from.

    Attributes:
        graph, source, sink: the known links, and the ends of the packets' path.
        random: stream of everything that the policy draws.
        memory: how long outcomes count, for the policies that learn by links.
        rates: the true success rate of each link, for `optimal` alone.
    """

    graph: LinkGraph
    source: int
    sink: int
    random: RandomStream
    memory: EstimateMemory = STATIONARY
    rates: Sequence[float] | None = None


def _planner(index: Callable[[RandomStream], LinkIndex]) -> Callable[[PathTask], PathPolicy]:
    def make(task: PathTask) -> PathPolicy:
        return PathPlanner(task.graph, task.sink, index(task.random), task.random, memory=task.memory)

    return make


def _optimal(task: PathTask) -> PathPolicy:
    if task.rates is None:
        raise ConfigurationError("policy optimal: pass the success rates of all links")
    return Optimal(task.graph, task.sink, task.rates)


_POLICIES: dict[str, Callable[[PathTask], PathPolicy]] = {
    "planned": _planner(SharedPriorIndex),
    "paper": _planner(lambda _: KlIndex(PAPER_EXPLORATION)),
    "kl": _planner(lambda _: KlIndex(KL_EXPLORATION)),
    "ts": _planner(ThompsonIndex),
    "ts4": _planner(lambda random: ThompsonIndex(random, 4.0)),
    "next-hop": lambda task: NextHop(task.graph, task.sink, task.random),
    "end-to-end": lambda task: EndToEnd(task.graph, task.source, task.sink, task.random),
    "optimal": _optimal,
}

POLICIES: tuple[str, ...] = tuple(_POLICIES)
"""Names of all policies, the default first. Beside them `paper-C` is the paper's rule with another C of 0 to 1, and `lookahead-H`
is the rule with C = 1 that sees H links ahead."""


def policy_named(name: str, task: PathTask) -> PathPolicy:
    """Return a new policy with this name. Raises ConfigurationError for an unknown name."""
    if name.startswith(LOOKAHEAD) and name[len(LOOKAHEAD) :].isdecimal():
        hops = int(name[len(LOOKAHEAD) :])
        return PathPlanner(task.graph, task.sink, KlIndex(1.0), task.random, memory=task.memory, lookahead=hops)
    if (exploration := _exploration(name)) is not None:
        return _planner(lambda _: KlIndex(exploration))(task)
    try:
        make = _POLICIES[name]
    except KeyError:
        known = ", ".join((*POLICIES, f"{PAPER}C", f"{LOOKAHEAD}H"))
        raise ConfigurationError(f"paths = {name!r}: unknown policy; use one of {known}") from None
    return make(task)


def _exploration(name: str) -> float | None:
    """Return C of a name `paper-C`; None: it is another name, or C is not within 0 and 1."""
    try:
        exploration = float(name.removeprefix(PAPER)) if name.startswith(PAPER) else -1.0
    except ValueError:
        return None
    return exploration if 0 <= exploration <= 1 else None
