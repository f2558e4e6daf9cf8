"""What a run that is brought back writes again behind its last epoch: which sinks bear that, and in what words it is said.

A sink either takes rows back (`can_abort`), or it delivers: it says when what it was given has arrived, an epoch waits for that,
and nothing is lost. What came after the epoch is written again; with an option such as `key=` of a table that changes nothing,
elsewhere its user says `duplicates=1`.
"""

from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from agiledart_connectors.options import flag
from agiledart_dataflow.plan.connector_kinds import Guarantee
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import AgileDartError

OPTION: Final = "duplicates"
IDEMPOTENT: Final = "same effect when repeated"
AT_LEAST_ONCE: Final = "none lost with exactly-once, may repeat"

DeliveryCallback = Callable[[AgileDartError | None], None]


@runtime_checkable
class ConfirmsDelivery(Protocol):
    """A sink that says when rows have arrived."""

    def when_delivered(self, on_delivered: DeliveryCallback) -> None:
        """`told` is called once, at once or by another thread: with None when all rows taken so far have arrived where they
        belong, with an error when they never will.
        """
        ...


@runtime_checkable
class NumbersRows(Protocol):
    """A sink that names rows by their number in the run."""

    def resume_at(self, number: int) -> None:
        """It is brought back to where it had written so many rows. Called before the next one."""
        ...


def duplicates_fault(connector: Connector, guarantee: Guarantee | None) -> str:
    """Why a sink may not write rows again, and what would help; empty when it may.

    Raises:
        ConfigurationError: `duplicates` is neither 0 nor 1.
    """
    if guarantee is None or not guarantee.delivers:
        return "write to a log (log:NAME) or to files (csv:, jsonl:, parquet:)"
    if not confirms_all_rows(connector, guarantee):
        return f"nobody says whether they arrive: add {guarantee.confirms_with}=1"
    if is_idempotent(connector, guarantee) or flag(connector, OPTION):
        return ""
    same = (
        f", {guarantee.idempotent_with}=… lets one that comes again change nothing,"
        if guarantee.idempotent_with
        else ""
    )
    return f"write to a log (log:NAME){same} or say that rows may be there twice: {OPTION}=1"


def confirms_all_rows(connector: Connector, guarantee: Guarantee | None) -> bool:
    """Whether a sink as it is written says when rows have arrived, so that an epoch waits for them."""
    if guarantee is None or not guarantee.delivers:
        return False
    return not guarantee.confirms_with or connector.option(guarantee.confirms_with, "0") != "0"


def is_idempotent(connector: Connector, guarantee: Guarantee | None) -> bool:
    """Whether a row that a sink writes again changes nothing."""
    return guarantee is not None and bool(guarantee.idempotent_with and connector.option(guarantee.idempotent_with))


def sink_guarantee_text(connector: Connector, guarantee: Guarantee | None) -> str:
    """What a sink as it is written guarantees."""
    if guarantee is None:
        return ""
    if guarantee.confirms_with and connector.option(guarantee.confirms_with, "0") == "0":
        return f"may lose ({guarantee.confirms_with}=0)"
    if is_idempotent(connector, guarantee):
        return IDEMPOTENT
    return AT_LEAST_ONCE if guarantee.delivers and flag(connector, OPTION) else guarantee.duplicates


def source_guarantee_text(connector: Connector, guarantee: Guarantee | None) -> str:
    """The same of a source."""
    if guarantee is None:
        return ""
    if connector.kind in ("mqtt", "mqtts"):
        if connector.option("qos", "0") == "0":
            return "may lose (qos=0)"
        if not connector.option("session"):
            return "may lose what comes while it is away (no session=)"
        return AT_LEAST_ONCE
    return guarantee.duplicates
