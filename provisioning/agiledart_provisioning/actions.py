"""Actions of a policy with their reasons, and the state that follows from them."""

from dataclasses import dataclass, replace
from enum import Enum

from agiledart_provisioning.state import ProvisioningState


class ActionKind(Enum):
    """Kind of an action; the value is its written form."""

    START = "start"
    STOP = "stop"
    LEASE = "lease"
    MIGRATE = "migrate"
    RELEASE = "release"
    EXTEND = "extend"


@dataclass(frozen=True, slots=True)
class Action:
    """One action. Actions of a round are done in their order.

    Attributes:
        kind: the operation.
        host: the host that it concerns; of a migration, the target.
        why: reason for users.
        type_name: type of the instance; empty for leases, releases and extensions.
        source: host that a migrated instance leaves; else empty.
    """

    kind: ActionKind
    host: str
    why: str
    type_name: str = ""
    source: str = ""


def applied(state: ProvisioningState, action: Action) -> ProvisioningState:
    """Return the state after an action. Raises ValueError for one that is not possible."""
    match action.kind:
        case ActionKind.START:
            return state.with_instances(action.host, action.type_name, 1).with_scaling(action.type_name)
        case ActionKind.STOP:
            return state.with_instances(action.host, action.type_name, -1).with_scaling(action.type_name)
        case ActionKind.MIGRATE:
            return state.with_instances(action.host, action.type_name, 1).with_instances(
                action.source, action.type_name, -1
            )
        case ActionKind.LEASE:
            return state.with_new_host(action.host)
        case ActionKind.RELEASE:
            if state.host_named(action.host).instances:
                raise ValueError(f"{action.host} still has instances")
            return state.without_host(action.host)
        case ActionKind.EXTEND:
            host = state.host_named(action.host)
            return state.with_host(replace(host, paid_until_s=host.paid_until_s + state.btu_s))


class Round:
    """Actions of one round, and the state that they lead to. The given state is never changed."""

    def __init__(self, state: ProvisioningState) -> None:
        self.state = state
        self.actions: list[Action] = []

    def do(self, action: Action) -> None:
        """Add an action and advance the state."""
        self.state = applied(self.state, action)
        self.actions.append(action)

    def new_host_name(self) -> str:
        """Return a name that no host of the state has."""
        names = {host.name for host in self.state.hosts}
        number = 1
        while f"new-{number}" in names:
            number += 1
        return f"new-{number}"
