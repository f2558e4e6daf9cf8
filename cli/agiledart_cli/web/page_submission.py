"""Submissions of a page that may write: `agiledart submit` in a process of its own, first as a dry run.

The page names a file of the folder in which `agiledart web` runs, and its settings. User code never runs in the page's
own process. A submission whose placement was not shown is refused.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.text import harmless_document, harmless_lines

SUBMIT_SECONDS = 180.0
"""Longest run of `agiledart submit`. An application that waits for capacity waits without it."""

MAX_SETTINGS = 64
MAX_TEXT = 2_048
MAX_ERROR = 4_000
MAX_SHOWN = 64
"""Submissions that a page remembers: those whose placement was shown, and the last one of each application."""


@dataclass(frozen=True)
class PageSubmission:
    """Application that a user requests: `FILE:NAME`, settings `NAME=VALUE`, and a name; empty: the topology's own."""

    target: str
    settings: tuple[str, ...]
    name: str

    @staticmethod
    def of(body: Mapping[str, Any], folder: Path) -> "PageSubmission":
        """Return the submission that a page sent. Raises ConfigurationError: it is none, or the file is elsewhere."""
        target, name, settings = body.get("target"), body.get("name", ""), body.get("settings", [])
        if not _is_text(target) or not _is_text(name) or not isinstance(settings, list) or len(settings) > MAX_SETTINGS:
            raise ConfigurationError("The page sent no submission; reload it.")
        if not all(_is_text(text) and "=" in text for text in settings):
            raise ConfigurationError("Write each setting as NAME=VALUE, in a line of its own.")
        file = (folder / target.rpartition(":")[0]).resolve()
        if not target.strip(":") or not file.is_relative_to(folder.resolve()) or not file.is_file():
            raise ConfigurationError(
                f"{target} is no FILE:NAME in {folder}, where `agiledart web` runs. Start it in the folder of your files."
            )
        return PageSubmission(target, tuple(settings), name)


class PageSubmissions:
    """Submits for a page.

    Args:
        agent, identity: as given to `agiledart web`.
        folder: folder of the files; the processes run in it.
    """

    def __init__(self, agent: str | None, identity: str | None, folder: Path) -> None:
        self._folder = folder
        given = (("--agent", agent), ("--identity", identity))
        self._options = tuple(f"{option}={value}" for option, value in given if value)
        self._lock = threading.Lock()
        self._shown: dict[PageSubmission, None] = {}
        self._latest: dict[str, PageSubmission] = {}

    def plan(self, body: Mapping[str, Any]) -> Any:
        """Return the dry run of a submission. Raises an AgileDartError with a text for the user."""
        submission = PageSubmission.of(body, self._folder)
        plan = self._run(submission, "--dry-run")
        with self._lock:
            self._shown[submission] = None
            while len(self._shown) > MAX_SHOWN:
                del self._shown[next(iter(self._shown))]
        return plan

    def submit(self, body: Mapping[str, Any]) -> Any:
        """Submit what was planned before. Raises an AgileDartError with a text for the user."""
        submission = PageSubmission.of(body, self._folder)
        with self._lock:
            if submission not in self._shown:
                raise OperationFailed("Look first where it would run.")
        response = self._run(submission)
        with self._lock:
            self._latest.pop(response["name"], None)
            self._latest[response["name"]] = submission
            while len(self._latest) > MAX_SHOWN:
                del self._latest[next(iter(self._latest))]
        return response

    def latest(self, name: str) -> dict[str, Any]:
        """Return what this page submitted last under a name; an empty submission when it was submitted elsewhere."""
        with self._lock:
            submission = self._latest.get(name, PageSubmission("", (), name))
        return {"target": submission.target, "settings": list(submission.settings), "name": submission.name}

    def _run(self, submission: PageSubmission, *more: str) -> Any:
        """Run the command; return the JSON that it prints. Raises OperationFailed with its message."""
        words = [*more, *self._options, *(f"--set={text}" for text in submission.settings)]
        if submission.name:
            words.append(f"--name={submission.name}")
        try:
            ended = _finished([*words, "-o", "json", "--", submission.target], self._folder)
        except subprocess.TimeoutExpired:
            raise OperationFailed(
                f"It has not answered for {SUBMIT_SECONDS:.0f} s; `agiledart list` shows whether it runs."
            ) from None
        if ended.stdout.strip():
            return harmless_document(json.loads(ended.stdout))
        text = harmless_lines(ended.stderr.strip())[-MAX_ERROR:]
        raise OperationFailed(
            text or "It waits for capacity and starts when there is some; its page shows why it waits."
        )


def _finished(words: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run `agiledart submit` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "agiledart_cli.main", "submit", *words],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SUBMIT_SECONDS,
        check=False,
    )  # fmt: skip


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()
