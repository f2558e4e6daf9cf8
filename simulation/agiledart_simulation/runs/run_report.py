"""Report of a run: counts and violations."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class RunReport:
    """Report of a run.

    Args:
        violations: empty when all is well.
        events, messages: steps taken and messages sent by all machines.
        digest: of the whole run.
        virtual_s: time that passed in the virtual world.
        quiet_ns: virtual time from the last fault until everything was right.
        lookups, duplicates: look-ups sent; deliveries beyond the first.
        unowned_ms: longest time for which one of 16 watched keys had no owner.
        false_alarms: failures declared of nodes that lived, excused or not.
        reached: how often each kind of thing happened.
    """

    violations: tuple[str, ...]
    events: int
    messages: int
    digest: str
    virtual_s: float
    quiet_ns: int
    reached: tuple[tuple[str, int], ...]
    lookups: int = 0
    duplicates: int = 0
    unowned_ms: int = 0
    false_alarms: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        return {**asdict(self), "violations": list(self.violations), "reached": dict(self.reached)}
