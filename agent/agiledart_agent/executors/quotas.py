"""Quotas of owners on this node: executors, their memory, disk. Admins and agents' own sockets are not bound.

Memory is counted as what the owner's executors may take (`executor_memory_mb`), not as what they take now: otherwise
chance would decide about a submission. Disk is what the owner's applications have here: relative files, spools, state,
logs of sinks. It is counted at each start, and again while they run.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_agent.executors.executor_sharing import NO_SHARING, SharingBounds
from agiledart_agent.settings import AgentSettings
from agiledart_executor.user_code.application_folders import work_folder
from agiledart_executor.user_code.bounds import MB, Bounds, default_memory
from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import Quota
from agiledart_kernel.signed_commands import quota_of_signer, signer_of
from agiledart_sink_log.layout import logs_in
from agiledart_sink_log.plain_files import bytes_below

BOUND: Final = ("submitter",)
"""Roles that have quotas."""

_OF_TOKEN: Final = "by its token"

MAX_REMEMBERED: Final = 4_096
"""Applications whose owner is remembered."""


def user_code_bounds(settings: AgentSettings) -> Bounds:
    """Return the bounds of user code in one executor of this agent."""
    return Bounds(
        warning_seconds=settings.stuck_warning,
        limit_seconds=settings.stuck_limit,
        memory_bytes=settings.executor_memory_mb * MB or default_memory(),
    )


def sharing_bounds(settings: AgentSettings) -> SharingBounds:
    """Return the bounds of processes that applications of one owner share on this agent."""
    if settings.executors_share == "none":
        return NO_SHARING
    memory_bytes = settings.executors_share_memory_mb * MB
    return SharingBounds(settings.executors_share_most, memory_bytes, settings.executors_share_rows)


class Quotas:
    """Use of this node by owners, and their bounds: by this agent's settings, and by the token of each owner.

    Args:
        executor_bytes: of memory that one executor may take.
    """

    def __init__(self, settings: AgentSettings, executor_bytes: int) -> None:
        self._settings, self._executor_bytes = settings, executor_bytes
        self._owners: dict[str, bytes] = {}
        self._disk_quotas: dict[bytes, int] = {}  # megabytes that the latest token of an owner permits

    def refusal(
        self,
        application: str,
        version: int,
        signed_command: bytes,
        slots: Iterable[int],
        running: tuple[ExecutorProcess, ...],
    ) -> str:
        """Return why these executors of an application are not started; empty: they may. It may take long: it reads the disk.

        Args:
            signed_command: the command of the submission; the node has verified it.
        """
        try:
            (role, owner), quota = signer_of(signed_command), quota_of_signer(signed_command)
        except Refused:  # nothing is signed in this network
            return ""
        self._owners.pop(application, None)
        self._owners[application] = owner
        if len(self._owners) > MAX_REMEMBERED:
            del self._owners[next(iter(self._owners))]
        if role not in BOUND:
            return ""
        self._disk_quotas[owner] = quota.disk_mb
        if len(self._disk_quotas) > MAX_REMEMBERED:
            del self._disk_quotas[next(iter(self._disk_quotas))]
        owned = [
            (executor.application, executor.version, executor.slot)
            for executor in running
            if self._owners.get(executor.application) == owner
        ]
        wanted = [(application, version, slot) for slot in slots]
        count = len(dict.fromkeys((*owned, *wanted)))
        for have, unit, bounds in self._bounds(owner, count, quota):
            for most, origin in bounds:
                if most and have > most:
                    return (
                        f"{self._settings.name} allows {role} {owner.hex()[:16]} at most {most:,} {unit} ({origin}), and with "
                        f"{application} it would be {have:,}. Stop something of yours there, or ask whoever "
                        f"{'made the token' if origin == _OF_TOKEN else 'runs it'} for more"
                    )
        return ""

    def over_disk(self, running: Iterable[str]) -> dict[str, str]:
        """Return the running applications whose owners have more on this disk than they may, with the reason.

        It may take long: it reads the disk.
        """
        owners = {
            name: owner for name in dict.fromkeys(running) if (owner := self._owners.get(name)) in self._disk_quotas
        }
        reasons = {owner: self._disk_reason(owner) for owner in set(owners.values())}
        return {name: reasons[owner] for name, owner in owners.items() if reasons[owner]}

    def _disk_reason(self, owner: bytes) -> str:
        """Return why an owner's applications must end here; empty: they may go on."""
        bounds = (self._settings.quota_disk_mb, "quota.disk_mb"), (self._disk_quotas[owner], _OF_TOKEN)
        most, origin = min((bound for bound in bounds if bound[0]), default=(0, ""))
        have = self._disk(owner) // MB if most else 0
        if have <= most:
            return ""
        return (
            f"its owner has {have:,} MB on the disk of {self._settings.name}, and may have {most:,} MB ({origin}). Stop or "
            f"forget something of yours there, or ask whoever {'made the token' if origin == _OF_TOKEN else 'runs it'} for more"
        )

    def _bounds(self, owner: bytes, count: int, quota: Quota) -> Iterator[tuple[int, str, tuple[tuple[int, str], ...]]]:
        """Yield (what it would be, unit, (bound, its origin) of this agent and of the owner's token)."""
        settings = self._settings
        executors = (settings.quota_executors, "quota.executors"), (quota.executors, _OF_TOKEN)
        yield count, "executors", executors
        memory = (settings.quota_memory_mb, "quota.memory_mb"), (quota.memory_mb, _OF_TOKEN)
        yield count * self._executor_bytes // MB, "MB of memory", memory
        if settings.quota_disk_mb or quota.disk_mb:
            disk = (settings.quota_disk_mb, "quota.disk_mb"), (quota.disk_mb, _OF_TOKEN)
            yield self._disk(owner) // MB, "MB on its disk", disk

    def _disk(self, owner: bytes) -> int:
        root: Path = self._settings.state_dir
        owned_names = [name for name, known_owner in tuple(self._owners.items()) if known_owner == owner]
        logs = sum(bytes_below(str(at)) for at, log in logs_in(root) if log.application in owned_names)
        return logs + sum(bytes_below(str(work_folder(root, name))) for name in owned_names)
