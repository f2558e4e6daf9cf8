"""Figures of gates, from their reports."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from agiledart_node.wire.lease_messages import GateReport

MAX_LABELS = 32
"""States and actions of a gate that get samples of their own."""

_Counts = Annotated[dict[str, Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=MAX_LABELS)]
_Amount = Annotated[float, msgspec.Meta(ge=0)]


class GateFigures(msgspec.Struct, frozen=True):
    """Part of a gate's report that metrics show; further fields are ignored.

    Args:
        gate: its name. paid_s, cost: of all its leases. spent, max_spend: of today.
        fault: why it cannot do its work now; states: leases by state; decisions: since its start, by action.
    """

    gate: str = ""
    paid_s: _Amount = 0.0
    cost: _Amount = 0.0
    spent: _Amount = 0.0
    max_spend: _Amount = 0.0
    fault: str = ""
    states: _Counts = {}
    decisions: _Counts = {}


_DECODER = msgspec.json.Decoder(GateFigures)


def gate_figures(reports: Sequence[GateReport]) -> tuple[GateFigures, ...]:
    """Return the figures of reports; one that is no report of a gate is left out."""
    figures = []
    for report in reports:
        try:
            figures.append(msgspec.structs.replace(_DECODER.decode(report.report), gate=report.gate))
        except msgspec.MsgspecError:
            continue
    return tuple(figures)
