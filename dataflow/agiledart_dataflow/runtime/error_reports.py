"""Reports to users of records that an error policy dropped: the first of each burst in full, the rest as a number.

A step that fails for every record must not fill the log, nor cost more than the work it skips. Between two looks only one error
text is made per step and kind of error; the others are only counted. The executor looks twice a second and so sets the rate of
texts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from agiledart_dataflow.user_code.user_errors import is_engine_file, user_code_error

MAX_KINDS: Final = 8
"""Kinds of errors of one step that are distinguished between two looks; all others are counted together."""

MAX_FRAMES: Final = 6
"""Frames of the user's own code that a report shows, the innermost."""

QUIET_LOOKS: Final = (0, 2, 8, 20, 60)
"""Looks that a kind of error stays quiet after its 1st, 2nd … report.

With two looks a second it is reported at once, then after about 1, 4, 10 and from then on every 30 seconds.
"""

OTHERS: Final = "other errors"


@dataclass
class _Kind:
    """One kind of error of one step: their number since the last report, the text of the first of them."""

    count: int = 0
    text: str = ""
    report_count: int = 0
    quiet: int = 0


@dataclass
class _Step:
    policy: str = ""
    kinds: dict[str, _Kind] = field(default_factory=dict)


class ErrorReports:
    """Records of one instance that raised and were dropped."""

    def __init__(self) -> None:
        self._steps: dict[str, _Step] = {}

    def note(
        self, step: str, function: Callable[..., Any] | None, error: BaseException, record: Any, policy: str = "skip"
    ) -> None:
        """Note a record at which a step raised, with the policy (or other treatment) of the record. The caller counts it."""
        known = self._steps.get(step)
        if known is None:
            known = self._steps[step] = _Step(policy)
        name = type(error).__name__
        kind = known.kinds.get(name)
        if kind is None:
            if len(known.kinds) >= MAX_KINDS:
                name = OTHERS
            kind = known.kinds.setdefault(name, _Kind())
        kind.count += 1
        if not kind.text and not kind.quiet:
            kind.text = described(step, function, error, record, policy)

    def take(self) -> list[str]:
        """Return the texts to show now, each of several lines; call it at regular times."""
        texts = []
        for name, step in self._steps.items():
            for kind_name, kind in step.kinds.items():
                if kind.quiet:
                    kind.quiet -= 1
                if kind.text and not kind.quiet:
                    more = kind.count - 1
                    again = f"\n  … and {more:,} more {kind_name} in {name} since the last report" if more else ""
                    texts.append(kind.text + again)
                    kind.report_count += 1
                    kind.quiet = QUIET_LOOKS[min(kind.report_count, len(QUIET_LOOKS) - 1)]
                    kind.text, kind.count = "", 0
        return texts

    def rest(self) -> list[str]:
        """Return the errors counted and not yet reported, at the end of the instance."""
        return [
            f"{name}: {kind.count:,} more {kind_name} since the last report"
            for name, step in self._steps.items()
            for kind_name, kind in step.kinds.items()
            if kind.count
        ]


def described(step: str, function: Callable[..., Any] | None, error: BaseException, record: Any, policy: str) -> str:
    """Return step, place, error and record in one line, then the user's own frames."""
    treatment = {"dead_letter": "dead letter", "skip": "skipped"}.get(policy, policy)
    lines = [f"{treatment}: {user_code_error(step, function, error, record)}"]
    lines += [f"  {line}" for line in own_frames(error.__traceback__)]
    return "\n".join(lines)


def own_frames(trace: TracebackType | None) -> list[str]:
    """Return the innermost frames of user code: file, line and function."""
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_engine_file(code.co_filename):
            frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return frames[-MAX_FRAMES:]
