"""Wait for a correct clock: an agent whose clock is wrong waits and says so, instead of ending.

Boards without a clock boot like this.

They get the time from the network some seconds or minutes later. Until then the node could neither prove its membership
nor verify that of others.
"""

import select
import time
from collections.abc import Callable
from typing import TypeVar

from agiledart_agent.identity.clock_check import ClockIsWrong
from agiledart_kernel.errors import OperationFailed, Refused

LOOK_SECONDS = 1.0
"""Time between two checks of the clock: a process gets no notice when the clock is set."""

T = TypeVar("T")


class ClockWait:
    """Waits before an agent starts.

    Args:
        report: takes a text for people: once that it waits and why, once that it continues.
        extend_start: called at each check, for a service manager with a short timeout.
        parent_fd: its other end closes when the process that started this one has gone; below zero: none.
    """

    def __init__(self, report: Callable[[str], None], extend_start: Callable[[], None], parent_fd: int) -> None:
        self._report, self._extend_start, self._parent_fd = report, extend_start, parent_fd

    def until(self, attempt: Callable[[], T]) -> T:
        """Return the result of an attempt that the clock does not prevent. Other errors of the attempt are raised.

        Raises:
            OperationFailed: the process that started this agent has gone meanwhile.
        """
        is_reported = False
        while True:
            try:
                result = attempt()
            except ClockIsWrong as error:
                text = str(error)
            except Refused as error:
                # No other refusal heals when the clock is set.
                if error.reason != "not yet valid":
                    raise
                _, _, detail = str(error).partition(": ")
                shown = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
                text = (
                    f"The clock of this node says {shown} UTC, and its membership {detail}: its clock is behind. "
                    "Set it (sudo timedatectl set-ntp true)"
                )
            else:
                if is_reported:
                    self._report("the clock was set; continuing")
                return result
            if not is_reported:
                self._report(f"{text}; waiting until it is correct")
                is_reported = True
            self._extend_start()
            if self._parent_fd < 0:
                time.sleep(LOOK_SECONDS)
            elif select.select([self._parent_fd], [], [], LOOK_SECONDS)[0]:
                raise OperationFailed(
                    "The process that started this agent has gone while the agent waited for its clock."
                )
