"""Command and environment of a process that will run users' code: its modules come from the agent.

Neither the working directory nor the user's site is among the folders of its modules: users' code of an earlier run can write in
both. The agent's own environment is trusted, except that it does not choose the modules.
"""

import os
import sys
from collections.abc import Mapping

import agiledart_kernel

CREDENTIALS = "AGILEDART_CREDENTIALS"
"""Variable that names a folder with secrets of connectors, which executors open."""


def isolated_command(module: str) -> list[str]:
    """Return the beginning of a command that runs a module in this interpreter, without working directory and user's site."""
    return [sys.executable, "-s", "-P", "-m", module]


def module_folders() -> list[str]:
    """Return the folders from which this agent loads modules; its working directory only where its own modules lie there."""
    own = os.path.realpath(os.path.dirname(os.path.dirname(agiledart_kernel.__file__)))
    folders = dict.fromkeys(os.path.realpath(text) for text in sys.path if text)
    here = os.path.realpath(os.getcwd())
    return [folder for folder in folders if (folder != here or folder == own) and os.pathsep not in folder]


def isolated_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the agent's environment without its settings, in which a join token may stand, and with the agent's modules."""
    others = {key: value for key, value in own.items() if not key.startswith("AGILEDART_") or key == CREDENTIALS}
    return {**others, "PYTHONPATH": os.pathsep.join(module_folders()), "PYTHONNOUSERSITE": "1"}
