"""Start data of a leased machine: its join token, its zone and labels, and its lease. Nothing else in them is secret."""

import msgspec


class StartData(msgspec.Struct, frozen=True):
    """Start data, as JSON.

    Args:
        token: join token with one use. zone, labels: of the node.
        lease: content of the agent's `lease_file`, without the id that the machine has at its provider.
    """

    token: str
    zone: str
    labels: str
    lease: dict[str, str | int]

    def __repr__(self) -> str:
        return f"StartData({self.lease.get('lease_id')})"


def parsed(text: str) -> StartData:
    """Return the content of start data."""
    return msgspec.json.decode(text, type=StartData)
