"""How long a suspect has to refute, given how many others confirm the suspicion.

Alone, a node may be wrong because its own link is bad: it waits longest. Each independent confirmation shortens the wait, on a
logarithmic scale because the first ones say most.

Source: [Lifeguard] §IV-B; the logarithms are a table, so that all platforms agree.
"""

from typing import Final

MOST_CONFIRMATIONS: Final = 3

_SHORTENING_PERMILLE: Final = ((1000,), (0, 1000), (0, 631, 1000), (0, 500, 792, 1000))
"""1000 · log(c + 1) / log(k + 1), row k = confirmations that can be had, column c = confirmations so far."""


def suspicion_ns(confirmations: int, others: int, shortest_ns: int, longest_ns: int) -> int:
    """Time from suspicion to death.

    Args:
        confirmations: other nodes that confirmed so far.
        others: other nodes that could; with none, waiting longer would bring nothing.
        shortest_ns, longest_ns: bounds of the answer.
    """
    row = _SHORTENING_PERMILLE[max(0, min(others, MOST_CONFIRMATIONS))]
    shortening = row[max(0, min(confirmations, len(row) - 1))]
    return longest_ns - (longest_ns - shortest_ns) * shortening // 1000
