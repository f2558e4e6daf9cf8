"""Quota of applications per owner, as the asked agent and the scheduler check it."""

from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import NotAllowed
from agiledart_node.records.records import Records


async def check_applications(records: Records, principal: Principal, name: str, most: int) -> None:
    """Raise NotAllowed when this owner has reached the quota without this application. Admins have no quota.

    Args:
        most: quota of the agent for every user, 0: none. The owner's token may set a lower one.
    """
    token_quota = principal.quota.applications
    is_of_token = bool(token_quota) and (not most or token_quota < most)
    most = token_quota if is_of_token else most
    if not most or principal.role != "submitter":
        return
    running, _ = await records.applications(
        tuple(other_name for other_name in await records.names() if other_name != name)
    )
    owned = [
        other_name.name for other_name in running if other_name.owner_key == principal.key and not other_name.is_final
    ]
    if len(owned) >= most:
        raise NotAllowed(
            "quota",
            f"The quota of {principal.role} {principal.key.hex()[:16]} is {most} applications "
            f"({'by its token' if is_of_token else 'quota.applications'}), and "
            f"{', '.join(owned[:5])}{' …' if len(owned) > 5 else ''} {'runs' if len(owned) == 1 else 'run'}. "
            f"Stop one:  agiledart stop {owned[0]}",
        )
