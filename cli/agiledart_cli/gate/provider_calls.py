"""Calls of a gate to its provider. A lease has one join token for all its calls; a call without an answer counts as lost."""

import asyncio
from collections.abc import Callable

import msgspec

from agiledart_cli.gate.gate_disk import GateDisk
from agiledart_cli.gate.gate_file import GateFile
from agiledart_cli.gate.mesh_link import MeshLink
from agiledart_cli.gate.start_data import StartData
from agiledart_kernel.errors import AgileDartError, OperationFailed
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Event
from agiledart_provisioning.gate.gate_messages import (
    CallFailure,
    HostsListed,
    LeaseAnswered,
    LeaseCallFailed,
    LeaseHost,
    ListFailed,
    ReleaseAnswered,
)
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.providers.provider import Provider, ProviderCallError

CALL_SECONDS = 180.0
"""Time for a provider's answer; then it counts as lost."""


class ProviderCalls:
    """Calls of one gate.

    Args:
        file, settings: of the gate. prefix: names of the network's hosts begin with it.
        step: takes the answers, as events of the gate.
        print_line: prints a line about a call that failed and is repeated.

    Attributes:
        fault: why the provider cannot be reached; empty: it answered last.
        token_leases: hash of a token → its lease, also of earlier processes of this gate.
    """

    def __init__(
        self,
        provider: Provider,
        file: GateFile,
        settings: GateSettings,
        disk: GateDisk,
        mesh: MeshLink,
        prefix: str,
        step: Callable[[Event], None],
        print_line: Callable[[str], None],
    ) -> None:
        self._provider, self._file, self._settings, self._disk, self._mesh = provider, file, settings, disk, mesh
        self._prefix, self._step, self._print = prefix, step, print_line
        self.fault, self.token_leases = "", disk.tokens()
        self._tokens: dict[str, str] = {}

    async def lease(self, effect: LeaseHost) -> None:
        """Ask for a host. The answer is an event."""
        lease_id = effect.lease_id
        try:
            token = await asyncio.to_thread(self._token, lease_id)
        except (AgileDartError, OSError) as error:
            self._step(LeaseCallFailed(lease_id, CallFailure.REFUSED, f"no token: {error}"))
            return
        file, settings = self._file, self._settings
        lease: dict[str, str | int] = {
            "lease_id": lease_id,
            "gate": file.name,
            "unit_s": max(1, settings.btu_ns // SECOND),
            "grace_s": max(1, file.grace_ns // SECOND),
            "silence_s": max(1, settings.gone_ns // SECOND),
        }
        data = msgspec.json.encode(StartData(token, file.zone, file.labels, lease)).decode()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                host = await self._provider.lease(effect.host_name, effect.offer, data)
        except ProviderCallError as error:
            self._step(LeaseCallFailed(lease_id, error.failure, error.reason))
        except TimeoutError as error:
            self._step(LeaseCallFailed(lease_id, CallFailure.LOST, _reason(error)))
        else:
            self._step(LeaseAnswered(lease_id, host))

    def _token(self, lease_id: str) -> str:
        """Return the lease's token, the same for all its calls. One that an earlier process has made is revoked."""
        if lease_id in self._tokens:
            return self._tokens[lease_id]
        for token, lease in list(self.token_leases.items()):
            if lease == lease_id:
                try:
                    self._mesh.revoke_token(token)
                except OperationFailed as error:
                    self._print(f"an earlier token of {lease_id} goes on for at most 15 minutes: {error}")
        text, token = self._mesh.create_token()
        self.token_leases = {**self.token_leases, token: lease_id}
        self._disk.write_tokens(self.token_leases)
        self._tokens[lease_id] = text
        return text

    async def list_hosts(self, asked_ns: int) -> None:
        """Ask for the network's hosts. The answer is an event."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                hosts = await self._provider.hosts(self._prefix)
        except (ProviderCallError, TimeoutError) as error:
            self.fault = f"the provider cannot be reached: {_reason(error)}"
            self._step(ListFailed(_reason(error)))
        else:
            self.fault = ""
            self._step(HostsListed(asked_ns, hosts))

    async def release(self, host_id: str) -> None:
        """Ask for the end of a host. The answer is an event; without one the list of hosts leads to another call."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._provider.release(host_id)
        except (ProviderCallError, TimeoutError) as error:
            self._print(f"release of {host_id} failed, and is repeated: {_reason(error)}")
        else:
            self._step(ReleaseAnswered(host_id))


def _reason(error: ProviderCallError | TimeoutError) -> str:
    """Return the provider's words; a timeout has none."""
    return str(error) if isinstance(error, ProviderCallError) else f"no answer in {CALL_SECONDS:.0f} s"
