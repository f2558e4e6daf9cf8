"""Clients that outlive a task, and the identity with which they are made.

A worker of Spark runs many tasks, one after the other, and a new connection costs 7 ms of CPU at both ends. So a client whose task
has ended stays for the next one. No client is pickled or used after a fork.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from agiledart_kernel.errors import ConfigurationError
from pyspark_agiledart.reader_options import TOKEN_VARIABLE

if TYPE_CHECKING:
    from agiledart_transport.agent_connection import ClientIdentity

MAX_IDLE: Final = 4
"""Clients that a process keeps: one for each of its threads that ask agents."""

IDLE_SECONDS: Final = 60.0
"""Time after which an unused client is closed, at the next use of another one."""

ClientKey = tuple[tuple[str, ...], str, str, str]
"""Agents to ask, identity file, token file, token of the environment: tasks with the same may share a connection."""


class AccessOptions(Protocol):
    """Options of a reader or writer that say as whom it connects."""

    @property
    def bootstrap(self) -> tuple[str, ...]: ...
    @property
    def identity_file(self) -> str: ...
    @property
    def token_file(self) -> str: ...


class ClosableClient(Protocol):
    """A client."""

    def close(self) -> None: ...


C = TypeVar("C", bound=ClosableClient)


class IdleClients(Generic[C]):
    """Clients of one process that no task uses.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: list[tuple[float, ClientKey, C]] = []

    def take(self, key: ClientKey) -> C | None:
        """Return a client with this key, the last used one; None when there is none."""
        with self._lock:
            self._drop_old()
            for place in range(len(self._idle) - 1, -1, -1):
                if self._idle[place][1] == key:
                    return self._idle.pop(place)[2]
        return None

    def give(self, key: ClientKey, client: C) -> None:
        """Keep a client for a later task."""
        with self._lock:
            self._drop_old()
            self._idle.append((self._clock(), key, client))
            while len(self._idle) > MAX_IDLE:
                self._idle.pop(0)[2].close()

    def _drop_old(self) -> None:
        if self._process != os.getpid():  # forked: the sockets are the parent's
            self._process = os.getpid()
            self._idle.clear()
        while self._idle and self._clock() - self._idle[0][0] > IDLE_SECONDS:
            self._idle.pop(0)[2].close()


def client_key(options: AccessOptions) -> ClientKey:
    """Return the key of clients with these options in this process."""
    return options.bootstrap, options.identity_file, options.token_file, os.environ.get(TOKEN_VARIABLE, "")


def client_identity(
    options: AccessOptions, purpose: str, role: str, scope: str
) -> "tuple[ClientIdentity, tuple[str, ...]]":
    """Return identity and agents of the options.

    Args:
        purpose, role, scope: of the grant, for the error without a token.

    Raises `ConfigurationError` without a token, `OperationFailed` for an invalid one.
    """
    from agiledart_agent.identity.reader_identity import identity_from_token, read_identity

    if options.identity_file:
        identity, addresses = read_identity(Path(options.identity_file).expanduser())
    else:
        given = f"@{options.token_file}" if options.token_file else os.environ.get(TOKEN_VARIABLE, "")
        if not given:
            raise ConfigurationError(
                f"{purpose} needs a token: make one with  agiledart token create --role {role} "
                f"--scope {scope}  , keep it in a file of mode 0600 on every machine of Spark, and name that with "
                f".option('tokenFile', …), or set {TOKEN_VARIABLE}."
            )
        identity, addresses = identity_from_token(given)
    bootstrap = options.bootstrap or addresses
    if not bootstrap:
        raise ConfigurationError("The token names no agent; say one with .option('bootstrap', 'HOST:PORT').")
    return identity, bootstrap
