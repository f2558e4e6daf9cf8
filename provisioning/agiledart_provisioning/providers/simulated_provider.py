"""Provider `simulated`: a cloud in memory, whose next calls go wrong as asked."""

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_messages import CallFailure, ProviderHost
from agiledart_provisioning.providers.provider import HostOffer, ProviderCallError, offer_named
from agiledart_provisioning.providers.simulated_cloud import SimulatedCloud, described


class CloudFault(Enum):
    """Fault of a call."""

    QUOTA = "quota"
    PAYMENT = "payment"
    LOST_BEFORE = "lost before it is done"
    LOST_AFTER = "lost after it is done"
    SLOW = "slow"
    LISTED_LATE = "listed late"


class SimulatedProvider:
    """Provider on a simulated cloud.

    Args:
        cloud: its hosts.
        clock: wall clock, nanoseconds.
        sleep: waits for some seconds.
        faults: of the next calls, one a call; afterwards all is well.
    """

    def __init__(
        self,
        cloud: SimulatedCloud,
        clock: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
        offers: tuple[HostOffer, ...],
        faults: Iterable[CloudFault] = (),
    ) -> None:
        self.cloud = cloud
        self._clock, self._sleep, self._offers, self._faults = clock, sleep, offers, list(faults)

    async def offers(self) -> tuple[HostOffer, ...]:
        """Return the kinds of machines."""
        return self._offers

    async def lease(self, host_name: str, offer: str, start_data: str) -> ProviderHost:
        """Make a host, or return the listed one of this name."""
        offer_named(self._offers, offer)
        fault = await self._next_fault()
        if fault is CloudFault.QUOTA:
            raise ProviderCallError(CallFailure.QUOTA, "InstanceLimitExceeded: your quota permits 0 more machines")
        if fault is CloudFault.PAYMENT:
            raise ProviderCallError(CallFailure.PAYMENT, "your card was declined")
        now = self._clock()
        same_name = [host for host in self.cloud.listed(host_name, now) if host.host_name == host_name]
        late_ns = 60 * SECOND if fault is CloudFault.LISTED_LATE else 0
        host = same_name[0] if same_name else described(self.cloud.create(host_name, start_data, now, late_ns))
        self._lose_answer(fault)
        return host

    async def hosts(self, prefix: str) -> tuple[ProviderHost, ...]:
        """Return the listed hosts."""
        self._lose_answer(await self._next_fault())
        return self.cloud.listed(prefix, self._clock())

    async def release(self, host_id: str) -> None:
        """End a host."""
        fault = await self._next_fault()
        self.cloud.end(host_id, self._clock())
        self._lose_answer(fault)

    async def _next_fault(self) -> CloudFault | None:
        fault = self._faults.pop(0) if self._faults else None
        if fault is CloudFault.SLOW:
            await self._sleep(20.0)
        if fault is CloudFault.LOST_BEFORE:
            raise ProviderCallError(CallFailure.LOST, "connection reset")
        return fault

    def _lose_answer(self, fault: CloudFault | None) -> None:
        if fault is CloudFault.LOST_AFTER:
            raise ProviderCallError(CallFailure.LOST, "no answer in time")
