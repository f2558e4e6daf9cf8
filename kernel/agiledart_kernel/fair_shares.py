"""Shares of a bounded resource: no holder takes the last of it, and a holder of little always gets more.

A holder may have at most as much as then stays free. One holder alone gets half, two get a third each, and `n` greedy
holders leave one part of `n + 1`. Source: the dynamic threshold of Choudhury and Hahne (1998) for shared buffers.
"""


def fits_share(held: int, more: int, taken: int, most: int) -> bool:
    """Return whether a holder may take more.

    Args:
        held: units that the holder has.
        taken: units of all holders together, with those of `held`.
        most: units that there are.
    """
    return held + more <= most - taken - more
