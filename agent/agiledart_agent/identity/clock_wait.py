"""An agent whose clock cannot be right waits for it, and says so, in place of ending: boards without a clock boot like this.

They get the time from the network some seconds or minutes later. Until then the node could neither prove its membership nor judge
that of others.
"""

import select
import time
from collections.abc import Callable
from typing import TypeVar

from agiledart_agent.identity.identity import ClockIsWrong
from agiledart_kernel.errors import OperationFailed, Refused

LOOK_SECONDS = 1.0
"""Between two looks at the clock: nothing tells a process that it was set."""

T = TypeVar("T")


class ClockWait:
    """Waits before an agent starts.

    Args:
        say: takes what is to be told to people: once that it waits and why, once that it goes on.
        beat: called at each look, for a service manager that has little patience.
        parent_fd: its other end closes when whoever started this process has gone; below zero: there is none.
    """

    def __init__(self, report: Callable[[str], None], extend_start: Callable[[], None], parent_fd: int) -> None:
        self._report, self._extend_start, self._parent_fd = report, extend_start, parent_fd

    def until(self, attempt: Callable[[], T]) -> T:
        """What an attempt returns that is not hindered by the clock; other errors of it are raised.

        Raises:
            OperationFailed: who started this agent has gone meanwhile.
        """
        is_told = False
        while True:
            try:
                result = attempt()
            except ClockIsWrong as error:
                text = str(error)
            except Refused as error:
                if error.reason != "not yet valid":
                    raise
                _, _, detail = str(error).partition(": ")
                shown = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
                text = (
                    f"The clock of this node says {shown} UTC, and its membership {detail}: it is behind the clock of who let it "
                    "in. Set it (sudo timedatectl set-ntp true)"
                )
            else:
                if is_told:
                    self._report("the clock was set; going on")
                return result
            if not is_told:
                self._report(f"{text}; waiting until it is right")
                is_told = True
            self._extend_start()
            if self._parent_fd < 0:
                time.sleep(LOOK_SECONDS)
            elif select.select([self._parent_fd], [], [], LOOK_SECONDS)[0]:
                raise OperationFailed("Who started this agent has gone, while it waited for its clock.")
