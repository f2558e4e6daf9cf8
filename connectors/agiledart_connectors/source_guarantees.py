"""Properties of sources that decide which rows a restarted run can read again, by their kinds and options."""

from agiledart_dataflow.plan.connector_kinds import Guarantee
from agiledart_dataflow.plan.connectors import Connector
from agiledart_recovery.survival import SourceTraits


def reads_standard_input(connector: Connector) -> bool:
    """Return whether a source reads the standard input of its process."""
    return connector.path in ("", "-") and connector.kind in ("csv", "jsonl", "lines")


def follows_file(connector: Connector) -> bool:
    """Return whether a source reads a file that grows."""
    return connector.option("follow", "0") == "1"


def traits_of_source(
    connector: Connector, guarantee: Guarantee | None, *, spools: bool, is_clocked: bool, merges: bool
) -> SourceTraits:
    """Return the properties that decide what can be read of a source again.

    Args:
        guarantee: of its kind; None for a kind that its plugin does not describe, which is taken to be read again.
        spools, is_clocked, merges: as in `SourceTraits`.
    """
    rereads = not reads_standard_input(connector) and (guarantee is None or guarantee.can_rewind)
    return SourceTraits(
        rereads,
        confirms=not rereads and _confirms(connector, guarantee),
        follows=follows_file(connector),
        spools=spools,
        is_clocked=is_clocked,
        merges=merges,
    )


def _confirms(connector: Connector, guarantee: Guarantee | None) -> bool:
    """Return whether a source with these options confirms rows to their sender."""
    if guarantee is None or guarantee.acknowledges == "never":
        return False
    if connector.kind in ("mqtt", "mqtts"):
        return connector.option("qos", "0") != "0"
    return bool(connector.option("listen"))
