"""Values of the options of `agiledart place`: amounts, weights, ranges, seeds, time limits."""

import math

import click

from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.problem.objective import OBJECTIVES, Objective, unknown_name


def amounts(option: str, text: str) -> dict[str, float]:
    """Return `slots=4,cpu=100` as numbers. Raises click.BadParameter."""
    values = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, equals, number = part.partition("=")
        values[name.strip()] = _number(option, number) if equals else _number(option, part)
    return values


def objective(name: str | None, weights: str, ranges: str) -> Objective | None:
    """Return the objective of the options; None: the strategy's own. Raises ConfigurationError."""
    if name is None and not weights:
        if ranges:
            raise ConfigurationError("--ranges belongs to --objective weighted.")
        return None
    name = name or "weighted"
    if name not in OBJECTIVES:
        raise ConfigurationError(f"--objective {name}: {unknown_name(name, OBJECTIVES)}")
    spans = {}
    for part in ranges.split(","):
        if part.strip():
            metric, _, span = part.partition("=")
            low, _, high = span.partition(":")
            spans[metric.strip()] = _number("--ranges", low), _number("--ranges", high)
    return Objective(name, amounts("--weights", weights), spans)


def seconds(text: str | None) -> float | None:
    """Return `10s`, `500ms` or `10` as seconds. Raises click.BadParameter."""
    if text is None:
        return None
    number, factor = (text[:-2], 1e-3) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    value = _number("--time-limit", number) * factor
    if value <= 0:
        raise click.BadParameter(f"--time-limit {text}: use a time above 0, such as 10s.")
    return value


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Return `1-20` or `1,5,9` as whole numbers. Raises click.BadParameter."""
    result: list[int] = []
    for part in text.split(","):
        if not part.strip():
            continue
        low, dash, high = part.partition("-")
        try:
            result += range(int(low), int(high) + 1) if dash else [int(part)]
        except ValueError:
            raise click.BadParameter(f"{option} {text}: use numbers, such as 1-20 or 1,5,9.") from None
    return tuple(dict.fromkeys(result))


def _number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise click.BadParameter(f"{option}: {text.strip() or 'nothing'} is no number.")
    return value
