"""Services: the logical ports of a node, and which roles may use each. Source: the admission spec, section 2."""

from typing import Final, Literal

from agiledart_kernel.errors import Refused
from agiledart_kernel.frames import DATA_PROTOCOL, PROTOCOL_MIN, SPLIT_KEY_PROTOCOL
from agiledart_kernel.grants import Grant, Role
from agiledart_kernel.limits import MAX_FRAME_BYTES, MAX_LINKS_OF_WORKERS, MAX_READERS_FRAME_BYTES

Service = Literal["overlay", "data", "control", "sink_log", "feed", "fragments", "relay"]

ROLES_BY_SERVICE: Final[dict[str, tuple[Role, ...]]] = {
    "overlay": ("agent",),
    "data": ("agent", "executor"),
    "control": ("admin", "provisioner", "submitter", "reader"),
    "sink_log": ("admin", "agent", "submitter", "reader"),
    "feed": ("admin", "submitter", "writer"),
    "fragments": ("agent",),
    "relay": ("agent", "executor"),
}
"""Roles that may dial a service.

Each service limits further what they may *request*: verbs of `control`, scope of `sink_log` and `feed`, hosts of a run at
`fragments`.
"""

SERVERS_BY_SERVICE: Final[dict[str, tuple[Role, ...]]] = {
    "overlay": ("agent",),
    "data": ("agent", "executor"),
    "control": ("agent",),
    "sink_log": ("agent",),
    "feed": ("agent",),
    "fragments": ("agent",),
    "relay": ("agent",),
}
"""Roles that may answer at a service: a dialer verifies the acceptor, too."""

FIRST_PROTOCOL_BY_SERVICE: Final[dict[str, int]] = {
    "overlay": SPLIT_KEY_PROTOCOL,
    "fragments": SPLIT_KEY_PROTOCOL,
    "data": DATA_PROTOCOL,
}
"""First protocol whose messages at a service are understood. At the others, older users and readers are served."""


def first_protocol(service: str) -> int:
    """Return the first protocol that both ends of a link to a service must speak."""
    return FIRST_PROTOCOL_BY_SERVICE.get(service, PROTOCOL_MIN)


_OWNER_HEX: Final = 32
"""Hex digits of an owner's key in the scope of its executors."""


def executor_scope(application: str, owner: bytes) -> str:
    """Return the scope of an executor's grant: its application, and whose it is.

    Executors of the next owner of the name refuse it so. `owner`: a public key; empty where nothing is signed.
    """
    return f"app:{application}" + (f"#{owner.hex()[:_OWNER_HEX]}" if owner else "")


def application_of_scope(scope: str) -> str:
    """Return the application that the scope of an executor's grant names; empty: none."""
    kind, _, name = scope.partition(":")
    return name.partition("#")[0] if kind == "app" else ""


def _is_one_run(scope: str, other: str) -> bool:
    """Return whether two executors serve one application of one owner; earlier releases named no owner."""
    (name, _, owner), (other_name, _, other_owner) = scope.partition("#"), other.partition("#")
    return name == other_name and (owner == other_owner or not (owner and other_owner))


def check_service_access(service: str, grant: Grant, own: Grant | None = None, *, serves: bool = False) -> None:
    """Raise `Refused` (`service`, `role`, `scope`) unless the holder of `grant` may take part in this service.

    Args:
        grant: the peer's.
        own: ours; two executors communicate only within one application.
        serves: the peer is the acceptor, not the dialer.
    """
    table = SERVERS_BY_SERVICE if serves else ROLES_BY_SERVICE
    if service not in table:
        raise Refused("service", "no such service")
    if grant.role not in table[service]:
        raise Refused("role", f"{grant.role} at {service}")
    if grant.role == "agent" and grant.scope:
        raise Refused("scope", "an agent serves all applications, its grant is for one")
    is_between_executors = service == "data" and own is not None and own.role == grant.role == "executor"
    if is_between_executors and own is not None and not _is_one_run(own.scope, grant.scope):
        raise Refused("scope", "executors of two applications, or of two owners")


def links_of_key(service: str, ordinary: int) -> int:
    """Return how many links one key may have to a service; `ordinary`: to one that many processes of one user do not share."""
    return max(ordinary, MAX_LINKS_OF_WORKERS) if service in ("sink_log", "feed") else ordinary


def largest_frame(grant: Grant) -> int:
    """Return the largest frame of this peer, in bytes. A reader only sends questions, so its frames are short."""
    return MAX_READERS_FRAME_BYTES if grant.role == "reader" else MAX_FRAME_BYTES
