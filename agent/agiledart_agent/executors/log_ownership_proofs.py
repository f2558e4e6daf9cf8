"""Ownership proofs of logs that begin on this node: the owners' signed commands.

A log of another node may begin anew here, by a run of its owner or of an admin. It stays its owner's: the log's record
on the ring names the owner, and the signed command in it proves that. Without the ring only the owner's own runs begin
a log. These commands are stored beside the logs, out of the reach of users' code, and registered with them.
"""

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_executor.user_code.application_folders import logs_here
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.permissions import LogOwnership, Principal, log_write_refusal
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES, scope_of_signer, signer_of
from agiledart_node.records.log_permissions import not_to_be_written
from agiledart_node.records.sink_directory import SinkFound
from agiledart_sink_log.layout import log_directory, read_description

FOLDER: Final = "log-titles"
MAX_KNOWN: Final = 1_024
"""Remembered logs of other owners that begin here."""


class LogOwnershipProofs:
    """Signed commands that prove the owners of this node's logs.

    Args:
        root: the state directory.
        find: looks up a log on the ring.
    """

    def __init__(self, root: Path, home: NodeId, find: Callable[[str], Awaitable[SinkFound]]) -> None:
        self._root, self._home, self._find = root, home, find
        self._begun: dict[tuple[str, int, str], tuple[bytes, bytes]] = {}

    def of(self, name: str, owner: bytes) -> bytes:
        """Return the signed command of a log's owner; empty: none is stored."""
        try:
            raw = read_private(self._root / FOLDER / name, secret=True, max_bytes=MAX_SIGNED_COMMAND_BYTES)
            return raw if signer_of(raw)[1] == owner else b""
        except (OSError, OperationFailed, Refused):
            return b""

    async def add_log_owners(self, part: DeploymentPart) -> tuple[DeploymentPart, str]:
        """Return the part with the owners of logs that begin here and belong to another key, or why one may not begin."""
        try:
            role, key = signer_of(part.signed_command)
            principal = Principal(role, scope_of_signer(part.signed_command), key)
        except Refused:  # nothing is signed in this network
            return part, ""
        owners = []
        for name in dict.fromkeys(logs_here(part, self._home).of_users):
            about = part.application, part.version, name
            if about not in self._begun:
                if self._lies_here(name):
                    continue
                refusal, ownership = self._ownership_check(part, principal, name, await self._find(name))
                if refusal:
                    return part, refusal
                if ownership is None:
                    continue
                self._begun[about] = ownership
                if len(self._begun) > MAX_KNOWN:
                    del self._begun[next(iter(self._begun))]
            owners.append((name, self._begun[about][0]))
        return msgspec.structs.replace(part, log_owners=tuple(owners)), ""

    def _lies_here(self, name: str) -> bool:
        try:
            return read_description(log_directory(self._root, name)) is not None
        except OperationFailed:  # the opener of the log reports the error better
            return True

    @staticmethod
    def _ownership_check(
        part: DeploymentPart, principal: Principal, name: str, looked_up: SinkFound
    ) -> tuple[str, tuple[bytes, bytes] | None]:
        """Return (why the log may not begin here, its owner and the owner's command where that is not the run's)."""
        record = looked_up.record
        if record is None:
            if looked_up.reason and principal.role == "admin":
                return (
                    f"The owner of the log {name} is unknown: it is not on this node, and the ring did not answer "
                    f"({looked_up.reason}). Try again in some seconds."
                ), None
            return "", None
        log = LogOwnership(name, record.application, record.owner)
        if log_write_refusal(principal, part.application, part.owner, log):
            return not_to_be_written(log), None
        if record.owner in (b"", part.owner):
            return "", None
        if not looked_up.is_signed:
            return (
                f"The log {name} on {record.node.name or record.node.node.short} is recorded as owned by the key "
                f"{record.owner.hex()[:16]}…, but no signed command of that key proves it. Its owner must write to it with this "
                f"version of agiledart, or put the sink there:  log:{name}@{record.node.name}"
            ), None
        return "", (record.owner, record.ownership_proof)

    def keep(self, part: DeploymentPart) -> None:
        """Store the commands of the logs that a run has begun, or continues."""
        if not part.signed_command:
            return
        for name in dict.fromkeys((*(logs := logs_here(part, self._home)).of_users, *logs.of_latencies)):
            with contextlib.suppress(OSError, OperationFailed):
                described = read_description(log_directory(self._root, name))
                owner = bytes.fromhex(described.owner) if described is not None else b""
                if owner and not self.of(name, owner):
                    begun = self._begun.get((part.application, part.version, name), (b"", b""))[1]
                    self._write(name, owner, (part.signed_command, *part.signed_entries, begun))

    def _write(self, name: str, owner: bytes, signed_commands: tuple[bytes, ...]) -> None:
        for raw in signed_commands:
            try:
                is_of_owner = bool(raw) and signer_of(raw)[1] == owner
            except Refused:
                continue
            if is_of_owner:
                (self._root / FOLDER).mkdir(mode=0o700, exist_ok=True)
                write_durably(self._root / FOLDER / name, raw)
                return
