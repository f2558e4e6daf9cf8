"""Normal and exponential numbers out of the uniform ones that a seed promises."""

import math

from agiledart_kernel.randomness import RandomStream


def normal(random: RandomStream, mean: float, deviation: float) -> float:
    """One normal number (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - random.uniform()))
    return mean + deviation * radius * math.cos(2.0 * math.pi * random.uniform())


def exponential(random: RandomStream, mean: float) -> float:
    """One exponential number."""
    return -mean * math.log(1.0 - random.uniform())
