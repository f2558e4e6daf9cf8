"""Permissions: which role may use which verb of which service. One table, one pure function.

An application belongs to the key that submitted it, never to a name that a caller gives. Others may act on it as admin,
as submitter with its scope, or because its owner shared it. A scope limits everything: its holder may do only what
concerns its application. A verb without a row is refused, so a new verb needs a new row.

The key of an agent hosts and commands nothing for users: it may look at the network, drain itself and leave. Whoever runs
its machine has an operator's key for all else.

The log of a sink belongs to the owner of the application that began it. It stays so for longer than the application is
remembered. Source: the admission spec, section 2.
"""

from enum import Enum
from typing import Final, NamedTuple

import msgspec

from agiledart_kernel.grants import NO_QUOTA, Grant, Quota, Role
from agiledart_kernel.node_id import NodeId, node_id_of_key


class Principal(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The requester, as verified from its grant. The default has no permissions.

    Args:
        role: of the grant; empty: no permissions.
        scope: "" for everything, `app:NAME`, `sink:NAME` or `feed:NAME`.
        key: the public key that the requester has proven to hold.
        quota: bounds on what it may use.
    """

    role: str = ""
    scope: str = ""
    key: bytes = b""
    quota: Quota = NO_QUOTA

    @classmethod
    def of(cls, grant: Grant) -> "Principal":
        """Return the holder of a verified grant."""
        return cls(grant.role, grant.scope, grant.key, grant.quota)


class ApplicationOwnership(NamedTuple):
    """Ownership of an application that a request concerns, as far as this node knows it.

    Args:
        owner: the key that submitted it; empty: no application has this name, or it is older than owners are.
        exists: was it ever submitted?
        shared: keys to which the owner gave access.
    """

    name: str
    owner: bytes = b""
    exists: bool = True
    shared: tuple[bytes, ...] = ()


class LogOwnership(NamedTuple):
    """Ownership of a sink's log whose rows a request concerns, as far as this node knows it.

    Args:
        application: the application whose run wrote it last.
        owner: the owner of the application that began the log; empty: it is older than owners are.
        shared: keys to which the owner gave access to that application.
    """

    name: str
    application: str = ""
    owner: bytes = b""
    shared: tuple[bytes, ...] = ()


class FeedOwnership(NamedTuple):
    """Ownership of a feed, as far as this node knows it.

    Args:
        owner: key of the submitter that created it; empty: an admin created it, and all applications may read it.
    """

    name: str
    owner: bytes = b""


class VerbSubject(Enum):
    """Subject of a verb."""

    APPLICATION = "application"
    LIST = "list"
    """Applications; each requester sees those that it may see."""
    NETWORK = "network"
    """All nodes and their traffic. A requester with a scope has no access."""
    ONESELF = "oneself"
    """The requester itself, whatever its scope."""


class VerbRule(NamedTuple):
    """Permissions for one verb.

    Args:
        about: the subject of the verb.
        with_any: roles that may use it for every application, or for the network.
        with_own: roles that may use it for applications that they own, that are shared with them, or that their scope
            names.
        owner_only: neither a share nor a scope is enough.
    """

    about: VerbSubject
    with_any: frozenset[Role]
    with_own: frozenset[Role] = frozenset()
    owner_only: bool = False


_ADMIN: Final[frozenset[Role]] = frozenset(("admin",))
_SUBMITTER: Final[frozenset[Role]] = frozenset(("submitter",))
_USERS: Final[frozenset[Role]] = frozenset(("admin", "submitter", "reader"))
_ITSELF: Final[frozenset[Role]] = frozenset(("admin", "agent"))
"""Roles that may end or empty a node: an agent its own, which the node checks (`own_node_refusal`)."""
_GATE: Final[frozenset[Role]] = frozenset(("admin", "provisioner"))
"""Roles of a gate. The checks of `gate_token_refusal`, and of nodes, bind a provisioner to the hosts that it has leased."""
_ANYONE: Final[frozenset[Role]] = _USERS | {"agent", "provisioner"}

VERBS: Final[dict[str, VerbRule]] = {
    "submit": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "stop": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "checkpoint": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "export": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "recover": VerbRule(VerbSubject.APPLICATION, _ADMIN),
    "scale": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "move": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "model": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "tap": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "share": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER, owner_only=True),
    "forget": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER, owner_only=True),
    "secret": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "status": VerbRule(VerbSubject.APPLICATION, _ANYONE),
    "logs": VerbRule(VerbSubject.APPLICATION, _USERS),
    "explain": VerbRule(VerbSubject.APPLICATION, _USERS | {"provisioner"}),
    "list": VerbRule(VerbSubject.LIST, _ANYONE),
    "secrets": VerbRule(VerbSubject.LIST, frozenset(("admin", "submitter"))),
    "renew": VerbRule(VerbSubject.ONESELF, _ANYONE),
    "feed": VerbRule(VerbSubject.NETWORK, frozenset(("admin", "submitter"))),
    "feeds": VerbRule(VerbSubject.NETWORK, _USERS),
    "nodes": VerbRule(VerbSubject.NETWORK, _ANYONE),
    "route": VerbRule(VerbSubject.NETWORK, _ANYONE),
    "info": VerbRule(VerbSubject.NETWORK, _ANYONE),
    "create token": VerbRule(VerbSubject.NETWORK, _GATE),
    "ban": VerbRule(VerbSubject.NETWORK, _ADMIN),
    "bans": VerbRule(VerbSubject.NETWORK, _ANYONE),
    "tokens": VerbRule(VerbSubject.NETWORK, _GATE),
    "leave": VerbRule(VerbSubject.NETWORK, _ITSELF),
    "drain": VerbRule(VerbSubject.NETWORK, _ITSELF | _GATE),
    "audit": VerbRule(VerbSubject.NETWORK, _ADMIN),
    "provision": VerbRule(VerbSubject.NETWORK, _ADMIN),
    "provisioning": VerbRule(VerbSubject.NETWORK, _ANYONE),
    "lease": VerbRule(VerbSubject.NETWORK, _GATE),
}
"""Every verb of the control port. `refusal` says what a scope allows besides."""

READERS_OF_LOGS: Final[frozenset[str]] = frozenset(("admin", "agent", "submitter", "reader"))

WRITERS_OF_FEEDS: Final[frozenset[str]] = frozenset(("admin", "submitter", "writer"))

FEED_PREFIX: Final = "feed:"
"""Beginning of the name that stands for the application of a feed's log; no application can have such a name."""

REFUSALS: Final = ("verb", "role", "scope", "owner", "command", "quota")
"""Reasons of a refusal, fit for a metric's label."""


def may(principal: Principal, verb: str, application: ApplicationOwnership | None = None) -> bool:
    """Return whether a requester may use a verb. `application`: the subject; None for verbs that concern no application."""
    return not refusal(principal, verb, application)


def refusal(principal: Principal, verb: str, application: ApplicationOwnership | None = None) -> str:
    """Return one of `REFUSALS`, or an empty string when the requester is permitted."""
    row = VERBS.get(verb)
    if row is None or (row.about is VerbSubject.APPLICATION) != (application is not None):
        return "verb"
    if reason := refusal_before_lookup(principal, verb, "" if application is None else application.name):
        return reason
    if application is None or principal.role in row.with_any:
        return ""
    if not application.exists:
        return ""
    if principal.key and application.owner == principal.key:
        return ""
    is_trusted = principal.scope == f"app:{application.name}" or principal.key in application.shared
    return "" if is_trusted and not row.owner_only else "owner"


def refusal_before_lookup(principal: Principal, verb: str, name: str = "") -> str:
    """Return `refusal` as far as it is known before the application is looked up: a requester without any right learns
    nothing of it.
    """
    row = VERBS.get(verb)
    if row is None:
        return "verb"
    if principal.role not in row.with_any and principal.role not in row.with_own:
        return "role"
    if principal.scope and row.about is VerbSubject.NETWORK:
        return "scope"
    if principal.scope and row.about is VerbSubject.APPLICATION and principal.scope != f"app:{name}":
        return "scope"
    return ""


MAX_GATE_TOKEN_SECONDS: Final = 900


def gate_token_refusal(principal: Principal, role: str, uses: int, seconds: int, operator: str) -> str:
    """Return why a requester may not have such a token: `role`; empty: it may.

    A provisioner's tokens admit one agent, within 15 minutes, without an operator.
    """
    is_for_host = role == "agent" and uses == 1 and seconds <= MAX_GATE_TOKEN_SECONDS and not operator
    return "role" if principal.role == "provisioner" and not is_for_host else ""


def own_node_refusal(principal: Principal, node: NodeId, lease_key: bytes = b"") -> str:
    """Return why a requester may not empty this node: `role`; empty: it may.

    An agent's key empties its own node only, a provisioner's the nodes that it has leased.

    Args:
        lease_key: key of the gate that has renewed the lease of this node; empty: it is not leased.
    """
    if principal.role == "provisioner":
        return "" if lease_key and principal.key == lease_key else "role"
    return "role" if principal.role == "agent" and node_id_of_key(principal.key) != node else ""


def log_read_refusal(principal: Principal, log: LogOwnership) -> str:
    """Return why a requester may not read the rows of a log: one of `REFUSALS`; empty: it may.

    The holder of a scope may read the log that the scope names, or what its application wrote, whoever owns that: an
    admin has granted it. Agents keep and serve logs. Without a scope readers may read every log. Submitters may read
    logs that they own or that were shared with them, and logs that are older than owners are.
    """
    if principal.role not in READERS_OF_LOGS:
        return "role"
    if principal.scope:
        return "" if principal.scope in (f"sink:{log.name}", f"app:{log.application}") else "scope"
    if principal.role != "submitter" or not log.owner:
        return ""
    return "" if principal.key == log.owner or principal.key in log.shared else "owner"


def log_write_refusal(principal: Principal, application: str, owner: bytes, log: LogOwnership) -> str:
    """Return why a run may not write to an existing log: `owner`, or empty: it may.

    The log of a feed gets its rows from writers, so no run may write to it.

    Args:
        principal: the submitter of the run.
        application, owner: of the run. A log without an owner continues only for the holder of the scope of its
            application. The name alone may have been free, and then any submitter can take it.
    """
    if log.application.startswith(FEED_PREFIX):
        return "owner"
    if principal.role == "admin":
        return ""
    if not log.owner:
        return "" if log.application == application and principal.scope == f"app:{application}" else "owner"
    return "" if log.owner in (owner, principal.key) else "owner"


def feed_write_refusal(principal: Principal, feed: FeedOwnership) -> str:
    """Return why a requester may not write to a feed, or remove it: one of `REFUSALS`; empty: it may.

    A writer without a scope may write to every feed, a submitter only to its own feeds.
    """
    if principal.role not in WRITERS_OF_FEEDS:
        return "role"
    if principal.scope and principal.scope != f"{FEED_PREFIX}{feed.name}":
        return "scope"
    return "owner" if principal.role == "submitter" and principal.key != feed.owner else ""


def feed_read_refusal(owner: bytes, feed: FeedOwnership) -> str:
    """Return why an application may not read a feed: `owner`, or empty: it may.

    Args:
        owner: key that the application belongs to.
    """
    return "" if feed.owner in (b"", owner) else "owner"
