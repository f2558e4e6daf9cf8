"""Setup of every test process."""

import atexit
import contextlib
import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import settings

from tests.distribution import distribute

settings.register_profile("agiledart", deadline=None)  # no test depends on the clock of a busy machine
settings.load_profile("agiledart")


def _own_settings() -> None:
    """Commands keep identities in the user's settings: those of tests belong elsewhere."""
    folder = tempfile.mkdtemp(prefix="adt-config-")
    atexit.register(shutil.rmtree, folder, True)
    os.environ["XDG_CONFIG_HOME"] = folder
    os.environ.setdefault("AGILEDART_AGENT__ALLOW_ROOT", "true")  # agents of tests run as whoever tests


_own_settings()


def pytest_configure() -> None:
    """A shell that starts tests in the background ignores SIGINT for them, and so for every process that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # not the main thread: nothing to mend there
            signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Distribute the tests before xdist reads the groups."""
    distribute(items, os.cpu_count() or 1)
