"""Normal and exponential random numbers, made from the uniform numbers of a seeded stream."""

import math

from agiledart_kernel.randomness import RandomStream


def normal(random: RandomStream, mean: float, deviation: float) -> float:
    """Draw a normal number. Source: Box and Muller."""
    radius = math.sqrt(-2.0 * math.log(1.0 - random.uniform()))
    return mean + deviation * radius * math.cos(2.0 * math.pi * random.uniform())


def exponential(random: RandomStream, mean: float) -> float:
    """Draw an exponential number."""
    return -mean * math.log(1.0 - random.uniform())
