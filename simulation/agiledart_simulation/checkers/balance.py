"""How evenly operators lie on nodes.

Source: the project's specification of the dataflow graph §4 rule 3 and §5.
"""

from collections.abc import Mapping


def share_below(histogram: Mapping[int, int], operators: int) -> float:
    """Share of the nodes that host fewer than so many operators; `histogram`: operators → nodes."""
    nodes = sum(histogram.values())
    return sum(count for held, count in histogram.items() if held < operators) / nodes if nodes else 1.0


def balance_violations(histogram: Mapping[int, int], most: int, least_share: float) -> list[str]:
    """Fewer than so many operators on at least this share of the nodes."""
    share = share_below(histogram, most)
    if share >= least_share:
        return []
    return [
        f"balance: {share:.4%} of the nodes host fewer than {most} operators, wanted {least_share:.4%}; max {max(histogram)}"
    ]
