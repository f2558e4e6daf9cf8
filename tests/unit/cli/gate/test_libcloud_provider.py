"""Provider `libcloud`: any call to the cloud may fail, credentials stay where they are, and mistakes are named."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agiledart_cli.gate.cloud_driver import DRIVERS
from agiledart_cli.gate.helper_messages import CloudAnswer, CloudRequest
from agiledart_cli.gate.libcloud_helper import Credentials, answer, read_credentials
from agiledart_cli.gate.libcloud_provider import LibcloudProvider
from agiledart_cli.gate.start_data import StartData
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND
from agiledart_provisioning.providers.provider import ProviderCallError
from agiledart_provisioning.providers.simulated_cloud import SimulatedCloud

pytest.importorskip("libcloud", reason="the extra [cloud] is not installed")
from tests.unit.provisioning.recording_cloud import ERRORS, SECRET, RecordingDriver

NAME = "agiledart-net-g-1"
OPTIONS = {
    "driver": "digitalocean",
    "region": "fra1",
    "offer": "small",
    "image": "debian",
    "accept_cost_when_off": True,
}
START = msgspec.json.encode(
    StartData("tok", "hall", "a=b,c=it's", {"lease_id": "g-1", "gate": "g", "unit_s": 9})
).decode()


class World:
    """A cloud, a driver and a provider on it, at a time of its own."""

    def __init__(self, **options: object) -> None:
        self.now = 1_000_000 * SECOND
        self.cloud = SimulatedCloud()
        self.driver = RecordingDriver(self.cloud, lambda: self.now)
        self.answers: list[CloudAnswer] = []
        self.provider = LibcloudProvider({**OPTIONS, **options}, self.call)

    async def call(self, request: CloudRequest) -> CloudAnswer:
        credentials = Credentials("key-of-the-account", SECRET)
        self.answers.append(answer(request, self.driver, credentials, lambda: self.now / SECOND))
        return self.answers[-1]

    def fail_at(self, number: int, error: Exception, *, after: bool) -> None:
        """Fail in the n-th call to the driver, before it or after it is done."""
        seen = iter(range(10_000))

        def fail(call: str) -> None:
            if next(seen) == number:
                raise error

        if after:
            self.driver.after = fail
        else:
            self.driver.before = fail

    def lease_and_release(self) -> bool:
        """Lease and release as a gate does: repeat a failed call after a look at the list. Return whether a call failed."""
        has_failed = False

        async def script() -> None:
            nonlocal has_failed
            for _ in range(3):
                try:
                    leased = await self.provider.lease(NAME, "small", START)
                    break
                except ProviderCallError:
                    has_failed = True
                    self.now += 60 * SECOND
            assert len(self.cloud.running()) == 1
            for _ in range(3):
                try:
                    await self.provider.release(leased.host_id)
                    listed = await self.provider.hosts("agiledart-net-")
                    break
                except ProviderCallError:
                    has_failed = True
            assert listed == ()

        asyncio.run(script())
        return has_failed


@pytest.mark.parametrize("fault", list(ERRORS), ids=lambda fault: fault.name)
@pytest.mark.parametrize("after", [False, True])
def test_a_failure_in_any_call_leaves_one_machine_and_then_none(fault: object, after: bool) -> None:
    error = next(made for key, made in ERRORS.items() if key is fault)
    assert not World().lease_and_release()
    failures = 0
    for number in range(10):
        world = World()
        world.fail_at(number, error, after=after)
        failures += world.lease_and_release()
        assert world.cloud.running() == []
        assert len(world.cloud.hosts) == 1, "a failure makes no double"
        assert SECRET not in str(world.answers)
    assert failures >= (4 if after else 6), "the failures were met"


def test_the_machine_gets_its_start_script_its_tag_and_its_place() -> None:
    world = World(create={"ex_create_attr": "the driver's table wins", "ex_keyname": "mine"})
    asyncio.run(world.provider.lease(NAME, "small", START))
    keywords = world.driver.keywords
    assert keywords["location"].id == "fra1"
    assert keywords["ex_keyname"] == "mine"
    assert keywords["ex_create_attr"] == {"tags": ["agiledart", f"agiledart-lease:{NAME}"]}
    script = keywords["ex_user_data"]
    assert subprocess.run(["sh", "-n"], input=script.encode(), check=False).returncode == 0
    assert "--zone hall --label a=b --label 'c=it'\"'\"'s'" in script
    assert '"lease_id":"g-1"' in script
    assert SECRET not in script


def test_a_machine_that_has_switched_itself_off_is_deleted_but_a_new_one_is_not() -> None:
    world = World()
    asyncio.run(world.provider.lease(NAME, "small", START))
    world.driver.state = "stopped"
    assert len(asyncio.run(world.provider.hosts("agiledart-net-"))) == 1
    world.now += 700 * SECOND

    def busy(call: str) -> None:
        if call == "destroy_node":
            raise ConnectionResetError("a task runs on this machine")

    world.driver.before = busy
    assert len(asyncio.run(world.provider.hosts("agiledart-net-"))) == 1, "it still costs, so the gate still sees it"
    world.driver.before = lambda call: None
    assert asyncio.run(world.provider.hosts("agiledart-net-")) == ()
    assert world.cloud.running() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"driver": "ec3"}, "supported are ec2, openstack, digitalocean, gce, vultr"),
        ({"driver": "ec3"}, "Did you mean ec2?"),
        ({"driver": "linode"}, "so others are refused"),
        ({"regions": "x"}, "[provider] has no 'regions'; libcloud has driver, region"),
        ({"image": ""}, "[provider] needs image"),
        ({"driver": "openstack"}, "[provider] needs price"),
        ({"accept_cost_when_off": False}, "Write accept_cost_when_off = true"),
        (
            {"connection": {"ex_force_auth_token": "x"}},
            "credentials do not belong in this file. Set AGILEDART_CLOUD_KEY",
        ),
        ({"setup": "/no/such/file"}, "[provider] setup = '/no/such/file' cannot be read"),
        ({"price": -1}, "[provider] price = -1: it must be a number above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        LibcloudProvider({**OPTIONS, **options})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"region": "fra2"}, "region = 'fra2': the cloud has fra1. Did you mean fra1?"),
        ({"offer": "smal"}, "offer = 'smal': the provider has small. Did you mean small?"),
        ({"image": "debain"}, "image = 'debain': the cloud says: no such image"),
    ],
)
def test_names_that_the_cloud_does_not_know_are_refused_with_the_nearest(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        asyncio.run(World(**options).provider.offers())
    assert said in str(caught.value)


def test_the_price_of_a_unit_is_its_share_of_an_hour() -> None:
    (offer,) = asyncio.run(World(btu="10m").provider.offers())
    assert (offer.price, offer.btu_s) == (1_000, 600)


def test_credentials_come_from_the_environment_or_from_systemd(tmp_path: Path) -> None:
    (tmp_path / "cloud-key").write_text("from-systemd\n")
    assert read_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)}) == Credentials("from-systemd", "")
    found = read_credentials({"AGILEDART_CLOUD_KEY": "k", "AGILEDART_CLOUD_SECRET": SECRET})
    assert found == Credentials("k", SECRET)
    assert SECRET not in repr(found)


def helper(request: CloudRequest, *, path: str = "", **environment: str) -> dict[str, object]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AGILEDART_CLOUD")}
    variables["PYTHONPATH"] = path
    done = subprocess.run(
        [sys.executable, "-m", "agiledart_cli.gate.libcloud_helper"], input=msgspec.json.encode(request),
        env={**variables, **environment}, stdout=subprocess.PIPE, timeout=60, check=True,
    )  # fmt: skip
    document: dict[str, object] = json.loads(done.stdout)
    return document


def request(**values: object) -> CloudRequest:
    fields: dict[str, object] = {"verb": "offers", "driver": "ec2", "region": "eu-west-9", "image": "x"}
    return CloudRequest(**{**fields, "connection": {}, "create": {}, **values})  # type: ignore[arg-type]


def test_the_helper_process_names_the_variable_the_region_and_the_extra(tmp_path: Path) -> None:
    assert "set AGILEDART_CLOUD_KEY" in str(helper(request())["mistake"])
    known = {"AGILEDART_CLOUD_KEY": "some-key", "AGILEDART_CLOUD_SECRET": SECRET}
    assert "Did you mean eu-west-" in str(helper(request(), **known)["mistake"])
    (tmp_path / "libcloud.py").write_text("raise ImportError")
    assert 'pip install "agiledart[cloud]"' in str(helper(request(), path=str(tmp_path), **known)["mistake"])


def test_every_supported_driver_has_the_keywords_of_its_row() -> None:
    import inspect

    from libcloud.compute.providers import get_driver

    classes = {
        "openstack": "OpenStack_1_1_NodeDriver",
        "digitalocean": "DigitalOcean_v2_NodeDriver",
        "vultr": "VultrNodeDriverV2",
    }
    for name, row in DRIVERS.items():
        driver_class = get_driver(name)
        module = sys.modules[driver_class.__module__]
        maker = vars(module).get(classes.get(name, ""), driver_class).create_node
        taken = inspect.signature(maker).parameters
        assert {row.start_data, row.tags, *row.fixed} <= set(taken), name
        if not row.region:
            assert "location" in taken, name
