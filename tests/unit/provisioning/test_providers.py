"""Conformance of providers: a call may be repeated, an answer may be lost, and a host is known by its name."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_messages import CallFailure
from agiledart_provisioning.providers.provider import HostOffer, Provider, ProviderCallError
from agiledart_provisioning.providers.simulated_cloud import SimulatedCloud
from agiledart_provisioning.providers.simulated_provider import CloudFault, SimulatedProvider

PREFIX = "agiledart-net-"
NAME = f"{PREFIX}g-1"


class Clock:
    """Virtual wall clock, which a sleep advances."""

    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    async def sleep(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


def provider(*faults: CloudFault) -> tuple[SimulatedProvider, SimulatedCloud, Clock]:
    clock, cloud = Clock(), SimulatedCloud()
    made = SimulatedProvider(cloud, lambda: clock.now, clock.sleep, (HostOffer("small", 1_000, 600, 4),), faults)
    return made, cloud, clock


def run(script: Callable[[Provider], Awaitable[None]], made: Provider) -> None:
    asyncio.run(script(made))  # type: ignore[arg-type]


def test_a_second_lease_of_the_same_name_returns_the_same_host() -> None:
    made, cloud, _ = provider()

    async def script(subject: Provider) -> None:
        first = await subject.lease(NAME, "small", "")
        assert await subject.lease(NAME, "small", "") == first
        assert await subject.hosts(PREFIX) == (first,)

    run(script, made)
    assert len(cloud.running()) == 1


def test_a_lost_answer_leaves_a_host_that_the_list_names() -> None:
    made, _, _ = provider(CloudFault.LOST_AFTER)

    async def script(subject: Provider) -> None:
        with pytest.raises(ProviderCallError) as caught:
            await subject.lease(NAME, "small", "")
        assert caught.value.failure is CallFailure.LOST
        assert [host.host_name for host in await subject.hosts(PREFIX)] == [NAME]

    run(script, made)


def test_a_request_that_got_lost_makes_no_host() -> None:
    made, cloud, _ = provider(CloudFault.LOST_BEFORE)

    async def script(subject: Provider) -> None:
        with pytest.raises(ProviderCallError):
            await subject.lease(NAME, "small", "")

    run(script, made)
    assert cloud.running() == []


def test_a_host_that_is_listed_late_can_get_a_double() -> None:
    made, cloud, clock = provider(CloudFault.LISTED_LATE)

    async def script(subject: Provider) -> None:
        first = await subject.lease(NAME, "small", "")
        assert await subject.hosts(PREFIX) == ()
        second = await subject.lease(NAME, "small", "")
        assert second.host_id != first.host_id
        clock.now += 61 * SECOND
        assert len(await subject.hosts(PREFIX)) == 2

    run(script, made)
    assert len(cloud.running()) == 2


def test_a_slow_call_takes_its_time() -> None:
    made, _, clock = provider(CloudFault.SLOW)

    async def script(subject: Provider) -> None:
        began = clock.now
        await subject.lease(NAME, "small", "")
        assert clock.now - began == 20 * SECOND

    run(script, made)


@pytest.mark.parametrize(
    ("fault", "failure", "words"),
    [(CloudFault.QUOTA, CallFailure.QUOTA, "quota"), (CloudFault.PAYMENT, CallFailure.PAYMENT, "declined")],
)
def test_refusals_bring_the_words_of_the_cloud(fault: CloudFault, failure: CallFailure, words: str) -> None:
    made, cloud, _ = provider(fault)

    async def script(subject: Provider) -> None:
        with pytest.raises(ProviderCallError, match=words) as caught:
            await subject.lease(NAME, "small", "")
        assert caught.value.failure is failure

    run(script, made)
    assert cloud.running() == []


def test_a_release_may_be_repeated_and_a_vanished_host_is_released() -> None:
    made, cloud, clock = provider()

    async def script(subject: Provider) -> None:
        host = await subject.lease(NAME, "small", "")
        await subject.release(host.host_id)
        await subject.release(host.host_id)
        other = await subject.lease(NAME, "small", "")
        cloud.end(other.host_id, clock.now)
        assert await subject.hosts(PREFIX) == ()
        await subject.release(other.host_id)

    run(script, made)
    assert cloud.running() == []


def test_an_unknown_offer_is_refused_with_the_nearest_name() -> None:
    made, _, _ = provider()

    async def script(subject: Provider) -> None:
        with pytest.raises(ConfigurationError, match="Did you mean small"):
            await subject.lease(NAME, "smal", "")

    run(script, made)
