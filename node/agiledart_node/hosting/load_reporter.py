"""Load of this node, reported to the overlay: others prefer idle forwarders (overlay specification §3, w_p · load/cap).

The load is the larger of two shares: operator instances of the node's capacity, and processor time of its instances, by their
reports, of its cores. It is reported when it has changed by a twentieth, or back to zero.
"""

from agiledart_kernel.instants import Instant
from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.wire.events import InstanceFinished, InstanceReported
from agiledart_overlay.wire.events import SetLoad

PERMILLE = 1_000

STEP = 50
"""Change of the load that is reported, permille."""

BUSY = "busy_ns"
"""Key of a report: processor time that the instance has used so far."""

Name = tuple[str, int, int, int]
"""(application, version, stage, index)."""


class LoadReporter:
    """Computes the load from hosted instances and their reports."""

    def __init__(self, context: NodeContext, hosting: ApplicationHost) -> None:
        self._context, self._hosting = context, hosting
        self._reported_load = 0
        self._last: dict[Name, tuple[int, Instant]] = {}
        self._busy: dict[Name, int] = {}
        self._busy_sum = self._operators = 0
        hosting.on_capacity_changed, hosting.on_report = self._moved, self._reported

    @property
    def permille(self) -> int:
        """Load now, 0 to 1000."""
        config = self._context.config
        slots = PERMILLE * self._operators // config.capacity
        return min(PERMILLE, max(slots, self._busy_sum // config.cores))

    def _report_load(self) -> None:
        load = self.permille
        if abs(load - self._reported_load) >= STEP or (load == 0) != (self._reported_load == 0):
            self._reported_load = load
            self._context.deliver_to_overlay(SetLoad(load))

    def _reported(self, event: InstanceReported | InstanceFinished) -> None:
        """Update the processor share of a local instance from its report."""
        used, now = event.report.get(BUSY), self._context.now
        name = (event.application, event.version, event.stage, event.index)
        if isinstance(used, int):
            if name not in self._last:
                self._operators = self._hosting.operators  # an attempt may have brought more than the plan reserved
            before, since = self._last.get(name, (used, now))
            self._last[name] = (used, now)
            if now > since:
                share = PERMILLE * (used - before) // (now - since)
                self._set_busy(name, max(0, min(PERMILLE, share)))
        if isinstance(event, InstanceFinished):
            self._set_busy(name, 0)
        self._report_load()

    def _set_busy(self, name: Name, share: int) -> None:
        """Set the share of one instance; the sum is kept, because a node with many applications gets many reports."""
        self._busy_sum += share - self._busy.pop(name, 0)
        if share:
            self._busy[name] = share

    def _moved(self) -> None:
        """Recompute the load after capacity was reserved or released; ended instances use no processor time."""
        for name in [name for name in self._last if name[:2] not in self._hosting.table]:
            del self._last[name]
            self._set_busy(name, 0)
        self._operators = self._hosting.operators
        self._report_load()

    def violations(self) -> list[str]:
        """Return violated invariants: only hosted instances count as load, and their sum is right."""
        known = (*self._last, *self._busy)
        broken = [
            f"load: {name[0]} has ended here and still counts" for name in known if name[:2] not in self._hosting.table
        ]
        if self._busy_sum != (total := sum(self._busy.values())):
            broken.append(f"load: the sum of shares is {self._busy_sum}, not {total}")
        return broken
