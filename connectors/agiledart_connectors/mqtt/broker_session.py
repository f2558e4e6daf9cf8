"""Sessions at brokers that are to be ended, as values; nothing here loads paho."""

import msgspec

from agiledart_connectors.credentials import ProvisionedSecrets
from agiledart_dataflow.plan.connectors import ConnectorSpecification


class EndedSession(msgspec.Struct, frozen=True, array_like=True):
    """Source of a run that has ended.

    Args:
        connector: its broker.
        network, application, step, index: as of `SourceOrigin`; its session's name is made of them.
    """

    connector: ConnectorSpecification
    network: bytes
    application: str
    step: str
    index: int


class SessionRequest(msgspec.Struct, frozen=True, array_like=True):
    """Request to the process that ends sessions.

    Args:
        sessions: of each source.
        secrets: that the run's user has provisioned to this node.
    """

    sessions: tuple[EndedSession, ...]
    secrets: ProvisionedSecrets = ProvisionedSecrets()
