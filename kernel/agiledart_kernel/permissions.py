"""`may`: who may do what, for every verb at every port. One table, one pure function.

An application belongs to the key that submitted it, never to a name that somebody gives. Others act on it as admin, as submitter
with its scope, or because its owner shared it. A scope binds everything: whoever has one may do nothing that is not about its
application.
A verb without a row is refused, so whoever adds one brings its row. A sink's log belongs to the key that the application
which began it belongs to, for longer than the application is remembered. Source: the admission spec, section 2.
"""

from enum import Enum
from typing import Final, NamedTuple

import msgspec

from agiledart_kernel.grants import NO_QUOTA, Grant, Quota, Role


class Principal(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who asks: the part of a judged grant that permissions depend on. The default is nobody, who may nothing.

    Args:
        role: of the grant; empty: nobody.
        scope: "" for everything, `app:NAME` or `sink:NAME`.
        key: the public key that the asker has proven to hold.
        quota: how much it may have.
    """

    role: str = ""
    scope: str = ""
    key: bytes = b""
    quota: Quota = NO_QUOTA

    @classmethod
    def of(cls, grant: Grant) -> "Principal":
        """The holder of a verified grant."""
        return cls(grant.role, grant.scope, grant.key, grant.quota)


class ApplicationOwnership(NamedTuple):
    """What is known of an application when somebody wants something of it.

    Args:
        owner: the key that submitted it; empty: there is none of this name, or it is older than owners are.
        exists: was it ever submitted?
        shared: keys to which the owner gave it.
    """

    name: str
    owner: bytes = b""
    exists: bool = True
    shared: tuple[bytes, ...] = ()


class LogOwnership(NamedTuple):
    """What is known of a sink's log when somebody wants its rows.

    Args:
        application: whose run wrote it last.
        owner: the key to which the application that began it belonged; empty: it is older than owners are.
        shared: keys to which the owner gave that application.
    """

    name: str
    application: str = ""
    owner: bytes = b""
    shared: tuple[bytes, ...] = ()


class VerbSubject(Enum):
    """What a verb concerns."""

    APPLICATION = "application"
    LIST = "list"
    """Applications, of which each asker is shown what it may see."""
    NETWORK = "network"
    """All nodes and their traffic: not for who has a scope."""
    ONESELF = "oneself"
    """Who asks, whatever its scope."""


class VerbRule(NamedTuple):
    """One verb.

    Args:
        about: what it concerns.
        any_one: roles that may with every application, or with the network.
        own: roles that may with what is theirs, is shared with them or stands in their scope.
        owner_only: neither a share nor a scope is enough.
    """

    about: VerbSubject
    with_any: frozenset[Role]
    with_own: frozenset[Role] = frozenset()
    owner_only: bool = False


_ADMIN: Final[frozenset[Role]] = frozenset(("admin",))
_SUBMITTER: Final[frozenset[Role]] = frozenset(("submitter",))
_USERS: Final[frozenset[Role]] = frozenset(("admin", "submitter", "reader"))

VERBS: Final[dict[str, VerbRule]] = {
    "submit": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "stop": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "checkpoint": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "export": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "recover": VerbRule(VerbSubject.APPLICATION, _ADMIN),
    "scale": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "move": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "tap": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "share": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER, owner_only=True),
    "forget": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER, owner_only=True),
    "secret": VerbRule(VerbSubject.APPLICATION, _ADMIN, _SUBMITTER),
    "status": VerbRule(VerbSubject.APPLICATION, _USERS),
    "logs": VerbRule(VerbSubject.APPLICATION, _USERS),
    "explain": VerbRule(VerbSubject.APPLICATION, _USERS),
    "list": VerbRule(VerbSubject.LIST, _USERS),
    "secrets": VerbRule(VerbSubject.LIST, frozenset(("admin", "submitter"))),
    "renew": VerbRule(VerbSubject.ONESELF, _USERS),
    "nodes": VerbRule(VerbSubject.NETWORK, _USERS),
    "route": VerbRule(VerbSubject.NETWORK, _USERS),
    "info": VerbRule(VerbSubject.NETWORK, _USERS),
    "create token": VerbRule(VerbSubject.NETWORK, _ADMIN),
    "ban": VerbRule(VerbSubject.NETWORK, _ADMIN),
    "bans": VerbRule(VerbSubject.NETWORK, _USERS),
    "tokens": VerbRule(VerbSubject.NETWORK, _ADMIN),
    "leave": VerbRule(VerbSubject.NETWORK, _ADMIN),
    "drain": VerbRule(VerbSubject.NETWORK, _ADMIN),
    "audit": VerbRule(VerbSubject.NETWORK, _ADMIN),
}
"""Every verb of the control port. What a scope allows besides: `refusal`."""

READERS_OF_LOGS: Final[frozenset[str]] = frozenset(("admin", "agent", "submitter", "reader"))

REFUSALS: Final = ("verb", "role", "scope", "owner", "command", "quota")
"""Why somebody may not, fit for a metric's label."""


def may(principal: Principal, verb: str, application: ApplicationOwnership | None = None) -> bool:
    """May who asks do this? `application`: what it concerns; None for verbs that concern none."""
    return not refusal(principal, verb, application)


def refusal(principal: Principal, verb: str, application: ApplicationOwnership | None = None) -> str:
    """One of `REFUSALS`, or empty: it may."""
    row = VERBS.get(verb)
    if row is None or (row.about is VerbSubject.APPLICATION) != (application is not None):
        return "verb"
    if why := refusal_before_lookup(principal, verb, "" if application is None else application.name):
        return why
    if application is None or principal.role in row.with_any:
        return ""
    if not application.exists:
        return ""
    if principal.key and application.owner == principal.key:
        return ""
    is_trusted = principal.scope == f"app:{application.name}" or principal.key in application.shared
    return "" if is_trusted and not row.owner_only else "owner"


def refusal_before_lookup(principal: Principal, verb: str, name: str = "") -> str:
    """As `refusal`, as far as it can be said without having seen the application: who may not even ask learns nothing of it."""
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


def log_read_refusal(principal: Principal, log: LogOwnership) -> str:
    """Why somebody may not read the rows of a log: one of `REFUSALS`; empty: it may.

    Who has a scope may read the log that it names, or what its application wrote, whoever owns that: an admin has said so.
    Agents keep and serve logs. Without a scope readers may read all, submitters what is theirs or was shared with them, and what
    is older than owners are.
    """
    if principal.role not in READERS_OF_LOGS:
        return "role"
    if principal.scope:
        return "" if principal.scope in (f"sink:{log.name}", f"app:{log.application}") else "scope"
    if principal.role != "submitter" or not log.owner:
        return ""
    return "" if principal.key == log.owner or principal.key in log.shared else "owner"


def log_write_refusal(principal: Principal, application: str, owner: bytes, log: LogOwnership) -> str:
    """Why a run may not write a log that is there: `owner`, or empty: it may.

    Args:
        asker: who submitted the run.
        application, owner: the run's. A log without an owner goes on for who has the scope of its application: the name alone may
            have been free, and then anybody has it.
    """
    if principal.role in ("admin", "agent"):
        return ""
    if not log.owner:
        return "" if log.application == application and principal.scope == f"app:{application}" else "owner"
    return "" if log.owner in (owner, principal.key) else "owner"
