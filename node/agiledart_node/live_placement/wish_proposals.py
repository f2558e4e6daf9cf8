"""Proposals out of the wishes of hosts: each alone, then all together, since from a bad start no single move pays. Pure.

A host wishes for nodes near its instance's point. Those that break no rule and have room are compared by the measured objective:
coordinates are guesses, and the coordinator has measured delays.

Source: spec of placement §3, `mopa_probe`, and §10, "MOPA among hosts".
"""

from collections.abc import Mapping, Sequence

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.live_placement.move_controller import MoveProposal
from agiledart_node.live_placement.move_evaluator import MoveEvaluator
from agiledart_node.live_placement.placement_explanation import PlacementExplanation
from agiledart_placement.evaluation.evaluator import Violation, evaluate
from agiledart_placement.problem.problem import Problem

Copy = tuple[int, int]
Wishes = Mapping[Copy, Sequence[Peer]]
"""Instance → nodes, best first."""


class _AllowedMoves:
    """Moves of some instances, everything else fixed, against the placement now."""

    def __init__(self, evaluator: MoveEvaluator, before: float) -> None:
        self._evaluator, self._before = evaluator, before
        self._problem = Problem(evaluator.problem.request)
        self._labels = dict(zip(self._problem.instances, self._problem.labels, strict=True))
        self._broken = evaluate(self._problem, evaluator.problem.now, evaluator.objective).violations

    def proposal(self, moves: Mapping[Copy, NodeId]) -> MoveProposal | None:
        """Return moves as one proposal; None: they break a rule that is kept now, or a node is unknown or lacks room."""
        evaluator = self._evaluator
        if any(node not in evaluator.problem.network.hosts for node in moves.values()):
            return None
        moving = frozenset(self._labels[copy] for copy in moves)
        # A rule about an instance that moves must hold at its new node, whether it is broken now or not.
        known = [_concern(v) for v in self._broken if not moving & {str(v.get("operator")), str(v.get("other"))}]
        nodes = dict(evaluator.problem.now) | dict(moves)
        after = evaluate(self._problem, nodes, evaluator.objective)
        if any(_concern(violation) not in known for violation in after.violations):
            return None
        return evaluator.plan(nodes, self._before, after.value)


def wish_proposals(evaluator: MoveEvaluator, explanation: PlacementExplanation, wishes: Wishes) -> list[MoveProposal]:
    """Return the moves that hosts wish for and that are allowed.

    Args:
        explanation: of the placement now; instances that can only move together follow the first one with a wish.
    """
    if not wishes:
        return []
    allowed, moves, proposals = _AllowedMoves(evaluator, explanation.value), dict[Copy, NodeId](), []
    for unit in explanation.units:
        wished = next((wishes[copy] for copy in unit.instances if copy in wishes), ())
        trials = [
            allowed.proposal(dict.fromkeys(unit.instances, peer.node)) for peer in wished if peer.node != unit.node
        ]
        best = max((trial for trial in trials if trial is not None), key=_rank, default=None)
        if best is not None:
            proposals.append(best)
            moves |= dict.fromkeys(unit.instances, best.node)
    if len(proposals) > 1 and (together := allowed.proposal(moves)) is not None:
        proposals.append(together)
    return proposals


def _rank(proposal: MoveProposal) -> tuple[bool, float]:
    return proposal.ends_violation, proposal.gain


def _concern(violation: Violation) -> tuple[tuple[str, object], ...]:
    """Return what a broken constraint concerns, without its amounts."""
    return tuple(sorted((key, value) for key, value in violation.items() if key not in ("used", "limit", "topologies")))
