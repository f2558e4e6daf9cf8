"""Checks whether a user may act on an application, with the texts of refusals."""

from agiledart_kernel.permissions import ApplicationOwnership, Principal, refusal, refusal_before_lookup
from agiledart_node.context.node_context import NotAllowed
from agiledart_node.records.application import ApplicationRecord


def as_application(name: str, record: ApplicationRecord | None) -> ApplicationOwnership:
    """Return the facts that permissions depend on, from a record or for an unused name."""
    if record is None or record.is_forgotten:
        return ApplicationOwnership(name, exists=False)
    return ApplicationOwnership(name, record.owner_key, shared=record.shared_keys)


def check_unseen(principal: Principal, verb: str, name: str) -> None:
    """Raise `NotAllowed` when this requester may not even learn whether the application exists."""
    if why := refusal_before_lookup(principal, verb, name):
        raise NotAllowed(why, why_not(principal, verb, why, name))


def check(principal: Principal, verb: str, name: str, record: ApplicationRecord | None) -> None:
    """Raise `NotAllowed` unless this requester has the permission."""
    application = as_application(name, record)
    if why := refusal(principal, verb, application):
        raise NotAllowed(why, why_not(principal, verb, why, name, application.owner))


def why_not(principal: Principal, verb: str, why: str, name: str = "", owner: bytes = b"") -> str:
    """Return the text of a refusal, with advice."""
    if why == "scope":
        action = f"{verb} {name}" if name else f"{verb}, which shows the whole network"
        return f"This {principal.role} may use {principal.scope} only, not {action}. Ask with a token of another scope."
    if why == "owner":
        owner_text = f"the key {owner.hex()[:16]}…" if owner else "no key that is known"
        return (
            f"{name} belongs to {owner_text}, not to you: you may not {verb} it. Its owner, or an admin, can let you:  "
            f"agiledart share {name} {principal.key.hex()}"
        )
    if principal.role == "agent":
        return (
            f"This node only hosts: its operator may not {verb}. Ask with an identity of yours (--agent HOST:PORT --identity NAME),"
            " or let a user operate this node:  agiledart identity operator @FILE"
        )
    return f"A {principal.role or 'stranger'} may not {verb}. Ask with a token of another role."
