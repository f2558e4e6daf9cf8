"""Whether a user may do what it asks of an application, said in its words."""

from agiledart_kernel.permissions import ApplicationOwnership, Principal, refusal, refusal_before_lookup
from agiledart_node.context.node_context import NotAllowed
from agiledart_node.records.application import ApplicationRecord


def as_application(name: str, record: ApplicationRecord | None) -> ApplicationOwnership:
    """What permissions depend on of a record, or of a name that nobody has used."""
    if record is None or record.is_forgotten:
        return ApplicationOwnership(name, exists=False)
    return ApplicationOwnership(name, record.owner_key, shared=record.shared_keys)


def check_unseen(principal: Principal, verb: str, name: str) -> None:
    """Raise `NotAllowed` when this asker may not even learn whether there is such an application."""
    if why := refusal_before_lookup(principal, verb, name):
        raise NotAllowed(why, why_not(principal, verb, why, name))


def check(principal: Principal, verb: str, name: str, record: ApplicationRecord | None) -> None:
    """Raise `NotAllowed` unless this asker may."""
    application = as_application(name, record)
    if why := refusal(principal, verb, application):
        raise NotAllowed(why, why_not(principal, verb, why, name, application.owner))


def why_not(principal: Principal, verb: str, why: str, name: str = "", owner: bytes = b"") -> str:
    """The sentence for a refusal, with what to do next."""
    if why == "scope":
        what = f"{verb} {name}" if name else f"{verb}, which shows the whole network"
        return f"This {principal.role} may use {principal.scope} only, not {what}. Ask with a token of another scope."
    if why == "owner":
        whose = f"the key {owner.hex()[:16]}…" if owner else "no key that is known"
        return (
            f"{name} belongs to {whose}, not to you: you may not {verb} it. Its owner, or an admin, can let you:  "
            f"agiledart share {name} {principal.key.hex()}"
        )
    return f"A {principal.role or 'stranger'} may not {verb}. Ask with a token of another role."
