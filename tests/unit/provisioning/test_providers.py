"""Conformance of providers: a call may be repeated, an answer may be lost, and a host is known by its name.

The suite runs on the simulated provider, and on `libcloud` with a recording driver.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from agiledart_cli.gate.libcloud_provider import LibcloudProvider
from agiledart_cli.gate.start_data import StartData
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


Making = Callable[..., tuple[Provider, SimulatedCloud, Clock]]
START = msgspec.json.encode(StartData("token", "", "", {"lease_id": "g-1", "gate": "g", "unit_s": 600})).decode()


def simulated(*faults: CloudFault) -> tuple[Provider, SimulatedCloud, Clock]:
    clock, cloud = Clock(), SimulatedCloud()
    offers = (HostOffer("small", 1_000, 600, 4),)
    return SimulatedProvider(cloud, lambda: clock.now, clock.sleep, offers, faults), cloud, clock


def libcloud(*faults: CloudFault) -> tuple[Provider, SimulatedCloud, Clock]:
    pytest.importorskip("libcloud", reason="the extra [cloud] is not installed")
    from tests.unit.provisioning.recording_cloud import FaultyHelper, RecordingDriver

    clock, cloud = Clock(), SimulatedCloud()
    options = {"driver": "digitalocean", "region": "fra1", "offer": "small", "image": "debian", "btu": "10m"}
    driver = RecordingDriver(cloud, lambda: clock.now)
    call = FaultyHelper(driver, lambda: clock.now, clock.sleep, faults)
    return LibcloudProvider({**options, "accept_cost_when_off": True}, call), cloud, clock


@pytest.fixture(params=[simulated, libcloud])
def provider(request: pytest.FixtureRequest) -> Making:
    made: Making = request.param
    return made


def run(script: Callable[[Provider], Awaitable[None]], made: Provider) -> None:
    asyncio.run(script(made))  # type: ignore[arg-type]


def test_a_second_lease_of_the_same_name_returns_the_same_host(provider: Making) -> None:
    made, cloud, _ = provider()

    async def script(subject: Provider) -> None:
        first = await subject.lease(NAME, "small", START)
        assert await subject.lease(NAME, "small", START) == first
        assert await subject.hosts(PREFIX) == (first,)

    run(script, made)
    assert len(cloud.running()) == 1


def test_a_lost_answer_leaves_a_host_that_the_list_names(provider: Making) -> None:
    made, _, _ = provider(CloudFault.LOST_AFTER)

    async def script(subject: Provider) -> None:
        with pytest.raises(ProviderCallError) as caught:
            await subject.lease(NAME, "small", START)
        assert caught.value.failure is CallFailure.LOST
        assert [host.host_name for host in await subject.hosts(PREFIX)] == [NAME]

    run(script, made)


def test_a_request_that_got_lost_makes_no_host(provider: Making) -> None:
    made, cloud, _ = provider(CloudFault.LOST_BEFORE)

    async def script(subject: Provider) -> None:
        with pytest.raises(ProviderCallError):
            await subject.lease(NAME, "small", START)

    run(script, made)
    assert cloud.running() == []


def test_a_host_that_is_listed_late_can_get_a_double(provider: Making) -> None:
    made, cloud, clock = provider(CloudFault.LISTED_LATE)

    async def script(subject: Provider) -> None:
        first = await subject.lease(NAME, "small", START)
        assert await subject.hosts(PREFIX) == ()
        second = await subject.lease(NAME, "small", START)
        assert second.host_id != first.host_id
        clock.now += 61 * SECOND
        assert len(await subject.hosts(PREFIX)) == 2

    run(script, made)
    assert len(cloud.running()) == 2


def test_a_slow_call_takes_its_time(provider: Making) -> None:
    made, _, clock = provider(CloudFault.SLOW)

    async def script(subject: Provider) -> None:
        began = clock.now
        await subject.lease(NAME, "small", START)
        assert clock.now - began == 20 * SECOND

    run(script, made)


@pytest.mark.parametrize(
    ("fault", "failure", "words"),
    [(CloudFault.QUOTA, CallFailure.QUOTA, "quota"), (CloudFault.PAYMENT, CallFailure.PAYMENT, "declined")],
)
def test_refusals_bring_the_words_of_the_cloud(
    fault: CloudFault, failure: CallFailure, words: str, provider: Making
) -> None:
    made, cloud, _ = provider(fault)

    async def script(subject: Provider) -> None:
        with pytest.raises(ProviderCallError, match=words) as caught:
            await subject.lease(NAME, "small", START)
        assert caught.value.failure is failure

    run(script, made)
    assert cloud.running() == []


def test_a_release_may_be_repeated_and_a_vanished_host_is_released(provider: Making) -> None:
    made, cloud, clock = provider()

    async def script(subject: Provider) -> None:
        host = await subject.lease(NAME, "small", START)
        await subject.release(host.host_id)
        await subject.release(host.host_id)
        other = await subject.lease(NAME, "small", START)
        cloud.end(other.host_id, clock.now)
        assert await subject.hosts(PREFIX) == ()
        await subject.release(other.host_id)

    run(script, made)
    assert cloud.running() == []


def test_an_unknown_offer_is_refused_with_the_nearest_name(provider: Making) -> None:
    made, _, _ = provider()

    async def script(subject: Provider) -> None:
        with pytest.raises((ConfigurationError, ProviderCallError), match="Did you mean small"):
            await subject.lease(NAME, "smal", START)

    run(script, made)
