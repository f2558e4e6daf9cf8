"""Messages to a service manager: ready, alive, stopping, by systemd's protocol (a datagram to `NOTIFY_SOCKET`).

Without that variable nothing is sent. The watchdog's sign of life comes from the event loop, so an agent that hangs
sends none and is restarted.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import MutableMapping

NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"

START_EXTENSION_SECONDS = 30
"""Time by which each request extends the start."""


class ServiceManager:
    """Service manager at the other end of the notification socket, if there is one.

    Args:
        address: path of a datagram socket, `@` first for an abstract one; empty: no manager listens.
        watchdog_seconds: longest permitted silence; 0: unlimited.
    """

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds if address else 0.0

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> "ServiceManager":
        """Return the service manager of this process, and remove its variables: executors and users' programs must not
        have them.
        """
        address = environment.pop(NOTIFY_SOCKET, "")
        microseconds = environment.pop(WATCHDOG_USEC, "")
        pid = environment.pop(WATCHDOG_PID, "")
        is_mine = not pid or pid == str(os.getpid())
        seconds = int(microseconds) / 1e6 if microseconds.isdigit() and is_mine else 0.0
        return cls(address, seconds)

    def notify(self, *lines: str) -> None:
        """Send assignments such as `READY=1`, without waiting for the manager."""
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        # Without these signs the manager restarts the agent; an error has no other receiver.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as channel:
            channel.sendto("\n".join(lines).encode(), self._address)

    def extend_start_timeout(self) -> None:
        """Extend the start timeout, when the start takes longer by no fault of the agent's."""
        self.notify(
            f"EXTEND_TIMEOUT_USEC={START_EXTENSION_SECONDS * 1_000_000}", "STATUS=waiting until the clock is right"
        )

    async def keep_alive(self) -> None:
        """Give a sign of life twice in each watchdog interval, until cancelled."""
        while self.watchdog_seconds > 0:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / 2)
