"""Policy `btu`: instances scale by predicted delay; hosts are released only at the end of their paid time.

Source: [Hochreiner 2017] §4.
"""

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.actions import Action, Round
from agiledart_provisioning.downscaling import release_hosts_in_window
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.state import OperatorType, ProvisioningState
from agiledart_provisioning.upscaling import Upscaler
from agiledart_provisioning.utilities import up_trigger


class BillingTimeUnits:
    """Provisioning that uses each host until the end of the billing time unit that is paid."""

    def __init__(self, settings: ProvisioningSettings | None = None) -> None:
        self._settings = settings or ProvisioningSettings()

    def decide(self, state: ProvisioningState, random: RandomStream) -> tuple[Action, ...]:
        """Scale delayed types up, in random order; then release or extend the hosts whose paid time ends.

        Departs: types are taken in random order, as in the authors' prototype. The double step stands in the paper for the baseline
        only; only with it do simulated service levels come near the published ones.
        """
        current = Round(state)
        upscaler = Upscaler(current, self._settings)
        types = list(state.types)
        random.shuffle(types)
        for entry in types:
            if not up_trigger(entry, self._settings).fires:
                continue
            upscaler.scale_up(entry, _reason(entry))
            if self._settings.double_upscale and entry.queue > self._settings.double_threshold:
                upscaler.scale_up(entry, f"{entry.queue:g} items wait, more than {self._settings.double_threshold:g}")
        release_hosts_in_window(current, self._settings)
        return tuple(current.actions)


def _reason(entry: OperatorType) -> str:
    if entry.duration_ms is None:
        return f"{entry.queue:g} items wait and none was measured yet"
    return f"an item takes {entry.duration_ms:g} ms, the bound is {entry.slo_ms:g} ms, and {entry.queue:g} items wait"
