"""Guarantees of sinks for rows that a restarted run writes again after its last epoch, and the words that describe them.

A sink either aborts rows (`can_abort`), or it confirms delivery: it says when its rows have arrived, an epoch waits for that, and
nothing is lost. Rows after the epoch are written again.
With an option such as `key=` of a table that changes nothing; for other sinks the user accepts it with `duplicates=1`.
"""

from typing import Final

from agiledart_connectors.options import flag
from agiledart_dataflow.plan.connector_kinds import Guarantee
from agiledart_dataflow.plan.connectors import Connector

OPTION: Final = "duplicates"
IDEMPOTENT: Final = "idempotent"
AT_LEAST_ONCE: Final = "none lost with exactly-once, may repeat"


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
    """Return whether a sink with these options confirms the arrival of rows, so that an epoch waits for them."""
    if guarantee is None or not guarantee.delivers:
        return False
    return not guarantee.confirms_with or connector.option(guarantee.confirms_with, "0") != "0"


def is_idempotent(connector: Connector, guarantee: Guarantee | None) -> bool:
    """Return whether writing a row again changes nothing."""
    return guarantee is not None and bool(guarantee.idempotent_with and connector.option(guarantee.idempotent_with))


def sink_guarantee_text(connector: Connector, guarantee: Guarantee | None) -> str:
    """Return a text about the guarantee of a sink with these options."""
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
        if connector.option("session") == "none":
            return "may lose what comes while it is away (session=none)"
        return AT_LEAST_ONCE
    return guarantee.duplicates
