"""What users are told of records that an error policy let go: the first of each burst in full, the rest as a number.

A step that fails for every record must not fill the log, nor cost more than the work it skips: between two looks the text of
one error a step and a kind of error is made, and the others are only counted. Who looks (the executor, twice a second)
decides how often texts come.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from agiledart_dataflow.user_code.user_errors import is_engine_file, user_code_error

MAX_KINDS: Final = 8
"""Kinds of errors of one step that are told apart between two looks; the others are counted together."""

MAX_FRAMES: Final = 6
"""Frames of the user's own code that a report shows, the innermost."""

QUIET_LOOKS: Final = (0, 2, 8, 20, 60)
"""Looks that a kind of error stays quiet after its 1st, 2nd … report: with two looks a second it is told at once, then
after about 1, 4, 10 and from then on every 30 seconds."""

OTHERS: Final = "other errors"


@dataclass
class _Kind:
    """One kind of error of one step: how many since the last report, the text of the first of them."""

    count: int = 0
    text: str = ""
    report_count: int = 0
    quiet: int = 0


@dataclass
class _Step:
    policy: str = ""
    kinds: dict[str, _Kind] = field(default_factory=dict)


class ErrorReports:
    """The records of one instance that raised and were let go."""

    def __init__(self) -> None:
        self._steps: dict[str, _Step] = {}

    def note(
        self, step: str, function: Callable[..., Any] | None, error: BaseException, record: Any, policy: str = "skip"
    ) -> None:
        """A step raised for a record, and its policy lets the record go, or what else became of it. The caller counts it."""
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
        """Texts to show now, each of several lines; to be called at regular times."""
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
        """What was counted and not told yet, at the end of the instance."""
        return [
            f"{name}: {kind.count:,} more {kind_name} since the last report"
            for name, step in self._steps.items()
            for kind_name, kind in step.kinds.items()
            if kind.count
        ]


def described(step: str, function: Callable[..., Any] | None, error: BaseException, record: Any, policy: str) -> str:
    """Step, place, error and record in one line, then the user's own frames."""
    fate = {"dead_letter": "dead letter", "skip": "skipped"}.get(policy, policy)
    lines = [f"{fate}: {user_code_error(step, function, error, record)}"]
    lines += [f"  {line}" for line in own_frames(error.__traceback__)]
    return "\n".join(lines)


def own_frames(trace: TracebackType | None) -> list[str]:
    """The innermost frames that are not ours: file, line and function."""
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_engine_file(code.co_filename):
            frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return frames[-MAX_FRAMES:]
