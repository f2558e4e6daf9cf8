"""Generator of invented readings of machines in a factory: availability, production data, and temperature.

Readings of a machine in a minute: 5, 1 and 10. Sizes of production readings are those of images. Source: [Hochreiner 2017] table 2.
"""

from collections.abc import Iterator

from agiledart_kernel.randomness import RandomStream

MACHINES = 4
MINUTE_MS = 60_000
START_MS = 1_483_228_800_000
"""2017-01-01 00:00 UTC."""

AVAILABILITY, PRODUCTION, TEMPERATURE = 5, 1, 10
"""Readings of a machine in a minute."""

IMAGE_CHARACTERS = 12_400
"""Size of an image; a whole production reading has 12,500 bytes, as published."""

DOWN_SHARE, HOT_SHARE = 1 / 50, 1 / 100
"""Share of availability readings that report a stop, and of temperatures above `HOT_CELSIUS`."""

HOT_CELSIUS = 90.0
CYCLE_S = 60


def machine_names(machines: int) -> list[str]:
    """Return the names of the machines."""
    return [f"press{number + 1}" for number in range(machines or MACHINES)]


def _moments(machines: int, per_minute: int) -> Iterator[tuple[int, str]]:
    """Yield time and machine of each reading, in order of time."""
    names, number = machine_names(machines), 0
    while True:
        for name in names:
            yield START_MS + number * MINUTE_MS // per_minute, name
        number += 1


def availability_lines(seed: int, machines: int) -> Iterator[str]:
    """Yield lines `at_ms,machine,is_available`."""
    draw = RandomStream(seed, "machine-availability")
    for at_ms, name in _moments(machines, AVAILABILITY):
        yield f"{at_ms},{name},{'false' if draw.uniform() < DOWN_SHARE else 'true'}"


def temperature_lines(seed: int, machines: int) -> Iterator[str]:
    """Yield lines `at_ms,machine,celsius`."""
    draw = RandomStream(seed, "machine-temperature")
    for at_ms, name in _moments(machines, TEMPERATURE):
        is_hot = draw.uniform() < HOT_SHARE
        celsius = HOT_CELSIUS + 0.1 + 20 * draw.uniform() if is_hot else 40 + 50 * draw.uniform()
        yield f"{at_ms},{name},{celsius:.1f}"


def production_lines(seed: int, machines: int) -> Iterator[str]:
    """Yield lines `at_ms,machine,image`: the image's text begins with the figures of the last minute."""
    draw = RandomStream(seed, "machine-production")
    for at_ms, name in _moments(machines, PRODUCTION):
        produced = draw.index(60)
        figures = (produced, draw.index(produced + 1) // 4, 900, draw.index(6), draw.index(9))
        text = ";".join(str(figure) for figure in figures)
        yield f"{at_ms},{name},{text};{'#' * (IMAGE_CHARACTERS - len(text))}"
