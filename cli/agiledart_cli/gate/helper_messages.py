"""Messages between a gate and the helper process that calls a cloud, as JSON. They hold no credential."""

from typing import Any

import msgspec

from agiledart_provisioning.gate.gate_messages import ProviderHost


class CloudRequest(msgspec.Struct, frozen=True):
    """A call.

    Args:
        verb: offers, lease, hosts or release.
        driver, region, image: as in the gate's file.
        connection, create: further keywords of the driver, and of `create_node`.
        name: of the machine, or the prefix of names; size, script: of the machine; host_id: of the machine to release.
    """

    verb: str
    driver: str
    region: str
    image: str
    connection: dict[str, Any]
    create: dict[str, Any]
    name: str = ""
    size: str = ""
    script: str = ""
    host_id: str = ""

    def __repr__(self) -> str:
        return f"CloudRequest({self.verb}, {self.driver}, {self.name or self.host_id})"


class CloudSize(msgspec.Struct, frozen=True):
    """Kind of machine. `price`: of an hour in the currency of the cloud; 0: unknown."""

    name: str
    price: float


class CloudAnswer(msgspec.Struct, frozen=True):
    """Answer to a call.

    Args:
        mistake: of the user, as a whole sentence.
        failure: value of `CallFailure`; reason: the cloud's words, without credentials.
    """

    hosts: tuple[ProviderHost, ...] = ()
    sizes: tuple[CloudSize, ...] = ()
    mistake: str = ""
    failure: str = ""
    reason: str = ""
