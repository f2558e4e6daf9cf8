"""Compliance with service levels, as lines for users."""

from collections.abc import Iterable, Mapping
from typing import Any

from agiledart_cli.output import milliseconds
from agiledart_kernel.level_factors import LEVELS


def service_level_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each step with a service level; an estimate without rows says nothing."""
    lines = []
    for row in rows:
        if row["real_time"] is None:
            if not row["is_estimate"]:
                agreed = milliseconds(row["slo_ms"])
                lines.append(f"{row['step']} within {agreed}: not measured yet, or its rows have no ReadTime")
            continue
        shares = ", ".join(
            f"{row[level]:.1%} within {milliseconds(row['slo_ms'] * factor)}" for level, factor in LEVELS.items()
        )
        lines.append(f"{row['step']} {shares}{' (estimate, last 5 s)' if row['is_estimate'] else ''}")
    return lines
