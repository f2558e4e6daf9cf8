"""Provider `libcloud`: machines of clouds. Its calls run in a helper process, which alone has apache-libcloud and credentials."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from agiledart_cli.gate.cloud_driver import driver_named
from agiledart_cli.gate.cloud_start_script import start_script
from agiledart_cli.gate.gate_file import MILLION, number, span_ns, whole
from agiledart_cli.gate.helper_messages import CloudAnswer, CloudRequest
from agiledart_cli.gate.start_data import parsed
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_messages import CallFailure, ProviderHost
from agiledart_provisioning.providers.provider import HostOffer, ProviderCallError, offer_named

HOUR = 3_600
_TEXTS = ("driver", "region", "offer", "image", "setup")
_OPTIONS = (*_TEXTS, "price", "btu", "capacity", "connection", "create", "accept_cost_when_off")
_NEVER_IN_FILES = ("key", "secret", "password", "token", "credential")
_REQUEST_BYTES = 256 * 1_024

Call = Callable[[CloudRequest], Awaitable[CloudAnswer]]


class LibcloudProvider:
    """Machines of a cloud.

    Args:
        options: table `[provider]` of the gate's file. Raises ConfigurationError.
        call: carries out a request; the helper process does, unless a test has another one.
    """

    def __init__(self, options: Mapping[str, Any], call: Call | None = None) -> None:
        _check(options)
        self._options, self._call = options, call or in_helper
        self._driver = driver_named(options["driver"])
        self._price = number("provider", options, "price", 0.0)
        if not self._price and not self._driver.has_hourly_prices:
            raise ConfigurationError(
                f"[provider] needs price: of a billing time unit; the driver {options['driver']} has none of an hour"
            )
        if not self._driver.ends_when_off and options.get("accept_cost_when_off") is not True:
            raise ConfigurationError(
                f"[provider] driver = {options['driver']!r}: a machine there that no gate renews switches itself off, but it costs "
                "until it is deleted. Write accept_cost_when_off = true if you accept that"
            )
        self._unit_s = max(1, span_ns("provider", options, "btu", HOUR * SECOND) // SECOND)
        self._capacity = whole("provider", options, "capacity", 8)
        self._setup = _setup_commands(options.get("setup", ""))

    async def offers(self) -> tuple[HostOffer, ...]:
        """Return the sizes of machines. Raises ConfigurationError: region or image are unknown, or no credential is there."""
        answer = await self._ask("offers")
        offers = tuple(
            HostOffer(row.name, round((self._price or row.price * self._unit_s / HOUR) * MILLION), self._unit_s, self._capacity)
            for row in answer.sizes
        )  # fmt: skip
        chosen = offer_named(offers, self._options["offer"])
        if chosen.price <= 0:
            raise ConfigurationError(f"[provider] needs price: the cloud says none for {chosen.name}")
        return (chosen, *(offer for offer in offers if offer is not chosen))

    async def lease(self, host_name: str, offer: str, start_data: str) -> ProviderHost:
        """Make a machine, or return the listed one of this name."""
        script = start_script(parsed(start_data), host_name, self._capacity, self._setup, self._driver.id_command)
        answer = await self._ask("lease", name=host_name, size=offer, script=script)
        return answer.hosts[0]

    async def hosts(self, prefix: str) -> tuple[ProviderHost, ...]:
        """Return the machines whose name begins with a prefix; the call also deletes those that have switched themselves off."""
        answer = await self._ask("hosts", name=prefix)
        return tuple(sorted(answer.hosts, key=lambda host: (host.created_ns, host.host_id)))

    async def release(self, host_id: str) -> None:
        """Delete a machine; an unknown one is deleted already."""
        await self._ask("release", host_id=host_id)

    async def _ask(self, verb: str, **values: str) -> CloudAnswer:
        options = self._options
        request = CloudRequest(
            verb, options["driver"], options.get("region", ""), options["image"],
            dict(options.get("connection", {})), dict(options.get("create", {})), **values,
        )  # fmt: skip
        answer = await self._call(request)
        if answer.mistake:
            if verb == "offers":
                raise ConfigurationError(answer.mistake)
            raise ProviderCallError(CallFailure.REFUSED, answer.mistake)
        if answer.failure:
            raise ProviderCallError(CallFailure(answer.failure), answer.reason)
        return answer


def _check(options: Mapping[str, Any]) -> None:
    for key in options:
        if key not in _OPTIONS:
            raise ConfigurationError(f"[provider] has no {key!r}; libcloud has {', '.join(_OPTIONS)}")
    for key in _TEXTS:
        if not isinstance(options.get(key, ""), str):
            raise ConfigurationError(f"[provider] {key} = {options[key]!r}: it must be a text")
    for key in ("driver", "offer", "image"):
        if not options.get(key):
            raise ConfigurationError(f"[provider] needs {key}")
    for table in ("connection", "create"):
        content = options.get(table, {})
        if not isinstance(content, dict):
            raise ConfigurationError(f"[provider.{table}] must be a table")
        for key in content:
            if any(word in key.lower() for word in _NEVER_IN_FILES) and key != "ex_keyname":
                raise ConfigurationError(
                    f"[provider.{table}] {key}: credentials do not belong in this file. Set AGILEDART_CLOUD_KEY and "
                    "AGILEDART_CLOUD_SECRET, or systemd's LoadCredential=cloud-key: and cloud-secret:"
                )


def _setup_commands(path: str) -> str:
    try:
        return Path(path).read_text() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"[provider] setup = {path!r} cannot be read: {error}") from None


async def in_helper(request: CloudRequest) -> CloudAnswer:
    """Carry out a request in a process of its own. A cancelled or broken call counts as lost: it may have made a machine."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agiledart_cli.gate.libcloud_helper"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_REQUEST_BYTES,
    )  # fmt: skip
    try:
        output, _ = await process.communicate(msgspec.json.encode(request))
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    try:
        return msgspec.json.decode(output, type=CloudAnswer)
    except msgspec.MsgspecError:
        return CloudAnswer(failure=CallFailure.LOST.value, reason=f"the helper process ended with {process.returncode}")
