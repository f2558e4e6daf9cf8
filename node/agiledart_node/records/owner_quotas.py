"""How many applications one owner may have at one time, as the agent that is asked and the scheduler see it."""

from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import NotAllowed
from agiledart_node.records.records import Records


async def check_applications(records: Records, principal: Principal, name: str, most: int) -> None:
    """Raise NotAllowed when this owner has so many already beside this one. Admins are not bound.

    Args:
        most: that an agent lets everybody have, 0: any number. What the owner's token says bounds it, too.
    """
    given = principal.quota.applications
    is_of_token = bool(given) and (not most or given < most)
    most = given if is_of_token else most
    if not most or principal.role != "submitter":
        return
    found, _ = await records.applications(tuple(one for one in await records.names() if one != name))
    theirs = [one.name for one in found if one.owner_key == principal.key and not one.is_final]
    if len(theirs) >= most:
        raise NotAllowed(
            "quota",
            f"The quota of {principal.role} {principal.key.hex()[:16]} is {most} applications "
            f"({'by its token' if is_of_token else 'quota.applications'}), and "
            f"{', '.join(theirs[:5])}{' …' if len(theirs) > 5 else ''} {'runs' if len(theirs) == 1 else 'run'}. "
            f"Stop one:  agiledart stop {theirs[0]}",
        )
