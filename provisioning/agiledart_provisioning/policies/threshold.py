"""Policy `threshold`: the paper's baseline. Instances follow the queue; a host goes when its last instance ends.

Source: [Hochreiner 2017] §5.3.
"""

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.actions import Action, ActionKind, Round
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.state import Host, OperatorType, ProvisioningState
from agiledart_provisioning.upscaling import refuse_oversized
from agiledart_provisioning.utilities import host_utility


class Threshold:
    """Provisioning by queue length alone; it does not know billing time units."""

    def __init__(self, settings: ProvisioningSettings | None = None) -> None:
        self._settings = settings or ProvisioningSettings()

    def decide(self, state: ProvisioningState, random: RandomStream) -> tuple[Action, ...]:
        """Start one or two instances of types with long queues, stop one of types without a queue, release empty hosts.

        A host that stays is extended when its paid time has ended: the bill follows the lease, and decides nothing.
        """
        current = Round(state)
        types = list(state.types)
        random.shuffle(types)
        for entry in types:
            if entry.queue > self._settings.double_threshold:
                self._start(current, entry)
                self._start(current, entry)
            elif entry.queue > self._settings.scaling_threshold:
                self._start(current, entry)
            elif entry.queue < 1.0 and current.state.instances_of(entry.name) >= 2:
                hosts = [host for host in current.state.hosts if host.instances.get(entry.name)]
                host = max(hosts, key=lambda candidate: (_free_share(current.state, candidate), candidate.name))
                current.do(Action(ActionKind.STOP, host.name, "no item waits", entry.name))
        for host in current.state.hosts:
            running = sum(1 for other in current.state.hosts if other.is_running)
            if host.is_running and not host.instances and running > 1:
                current.do(Action(ActionKind.RELEASE, host.name, "its last instance ended"))
            elif host.paid_until_s <= state.now_s:
                current.do(Action(ActionKind.EXTEND, host.name, "it has instances"))
        return tuple(current.actions)

    def _start(self, current: Round, entry: OperatorType) -> None:
        """Start an instance on the first host with capacity; lease one when there is none."""
        state = current.state
        order = sorted(state.hosts, key=lambda host: not host.is_running)
        fitting = (host.name for host in order if host_utility(state, host, entry, self._settings) >= 0.0)
        name = next(fitting, "")
        if not name:
            refuse_oversized(entry, state.offer.cpu, state.offer.memory)
            name = current.new_host_name()
            current.do(Action(ActionKind.LEASE, name, f"no host has capacity for {entry.name}"))
        why = f"{entry.queue:g} items wait, more than {self._settings.scaling_threshold:g}"
        current.do(Action(ActionKind.START, name, why, entry.name))


def _free_share(state: ProvisioningState, host: Host) -> float:
    return state.free_cpu(host) / host.cpu + state.free_memory(host) / host.memory
