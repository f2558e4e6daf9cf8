"""A mesh and its applications as Python objects: submit, look, stop.

    with agiledart.connect() as mesh:
        application = mesh.submit("rooms.py:rooms", {"readings": "csv:readings.csv"})
        print(application.status()["state"])

All requests of a mesh go through one thread, which owns the connection: so a notebook, whose own thread runs an event loop, can use
an agent on another machine, and several threads can share a mesh. Documents are those of `-o json`; their schemas are in the
reference.
"""

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agiledart_control.control_client import ANSWER_SECONDS, ControlClient, connect
from agiledart_control.errors import NoAgentError
from agiledart_control.polling import FINAL_STATES, log_responses, tap_responses, wait_for_end
from agiledart_control.reader_token import write_reader_token
from agiledart_control.submission import SUBMIT_SECONDS, make_submission
from agiledart_kernel.errors import ConfigurationError
from agiledart_node.wire.commands import (
    Command,
    Forget,
    ListApplications,
    MoveStage,
    Nodes,
    RequestedParallelism,
    ScaleStage,
    Status,
    Stop,
)

if TYPE_CHECKING:
    from agiledart_dataflow.graph.topology import Topology

Document = dict[str, Any]
"""JSON object of a response, as a command prints it with `-o json`."""

AGENT_VARIABLE = "AGILEDART_AGENT"

STOP_SECONDS = 180.0
"""Longest silence of an agent that drains an application; it ends the application earlier by itself."""

CHANGE_SECONDS = 600.0
"""Longest silence of an agent that changes a stage while rows flow."""


class LoggedLine(NamedTuple):
    """Line that the code of an application printed or logged; `step` is empty for code outside steps."""

    node: str
    step: str
    text: str


class TappedRow(NamedTuple):
    """Row that left a step: fields by name, or the value of a row without fields; event time in milliseconds, if it has one."""

    node: str
    instance: int
    time_ms: int | None
    row: Any


class MeshClient:
    """Connection to an agent, and by it to its mesh. Use it as a context manager, or call `close`.

    Args:
        agent: state directory, socket, name of an agent of `agiledart up`, or HOST:PORT; None: `AGILEDART_AGENT`, else as the
            command line chooses.
        identity: token, `@FILE` with a token, or name of an identity, for an agent at HOST:PORT.

    Raises:
        NoAgentError: no agent answers there.
        ConfigurationError: the identity is missing, or is not needed.
    """

    def __init__(self, agent: str | None = None, identity: str | None = None) -> None:
        self._place = agent or os.environ.get(AGENT_VARIABLE) or None, identity
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agiledart")
        self._client: ControlClient | None = None
        try:
            self._thread.submit(self._connected).result()
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    def __enter__(self) -> "MeshClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a second call has no effect. Applications run on."""
        with contextlib.suppress(RuntimeError):  # closed before
            self._thread.submit(self._disconnect).result()
        self._thread.shutdown()

    def ask(self, command: Command, timeout: float = ANSWER_SECONDS) -> Any:
        """Send a command and return its JSON document. A connection that was lost is opened again by the next request.

        Raises:
            CommandRefusedError: the agent refused it; the message is the agent's sentence.
            NoAgentError: no agent answers, or the connection was lost in the meantime.
        """
        future = self._thread.submit(self._ask, command, timeout)
        try:
            return future.result()
        except BaseException:
            client = self._client
            if client is not None and not future.done() and not future.cancel():  # Ctrl-C: the thread must not wait on
                client.interrupt()
            raise

    def _ask(self, command: Command, timeout: float) -> Any:
        try:
            return self._connected().ask(command, timeout=timeout)
        except NoAgentError:
            self._disconnect()
            raise

    def _connected(self) -> ControlClient:
        if self._client is None:
            self._client = connect(*self._place)
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def submit(
        self,
        target: "str | Callable[..., Topology]",
        settings: Mapping[str, object] | None = None,
        *,
        name: str = "",
        parallelism: "int | Mapping[str, RequestedParallelism] | None" = None,
        executors: int = 0,
        delivery: Literal["", "survive", "exactly-once", "at-least-once", "at-most-once"] = "",
        moves: Literal["", "off", "advise", "on", "mopa"] = "",
        placement: str = "",
    ) -> "Application":
        """Run a topology on the mesh, and return once it runs.

        Args:
            target: `FILE.py:NAME` as for `agiledart submit`, or the function itself if it is in a file.
            settings: parameter of the function → value, as `--set` takes them: `{"trips": "csv:trips.csv@pi1", "limit": 5}`.
            name: the application's name; empty: the topology's own.
            parallelism: instances of every step, or step → instances, or step → (fewest, most).
            executors: worker processes of each node to use; 0: the agents' choice.
            delivery: behaviour when a node dies; empty: that of the topology.
            moves: whether its stages move to better nodes by themselves; empty: as the agents are set.
            placement: `STRATEGY` or `STRATEGY:OBJECTIVE`, as for `agiledart place`; empty: that of the topology, else the agents'.

        Raises:
            CommandRefusedError: the agent refuses it; the message is what the command would print.
            ConfigurationError, TopologyError, UserCodeError: the code or a setting is wrong; nothing was submitted.
        """
        response = self._submitted(
            target, settings, parallelism, name, executors, delivery, moves, placement, dry_run=False
        )
        return Application(self, response["name"])

    def dry_run(
        self,
        target: "str | Callable[..., Topology]",
        settings: Mapping[str, object] | None = None,
        *,
        name: str = "",
        parallelism: "int | Mapping[str, RequestedParallelism] | None" = None,
        delivery: Literal["", "survive", "exactly-once", "at-least-once", "at-most-once"] = "",
        placement: str = "",
    ) -> Document:
        """Return where the steps of a topology would run, and the checks of the nodes; start nothing. Arguments as of `submit`."""
        return self._submitted(target, settings, parallelism, name, 0, delivery, "", placement, dry_run=True)

    def applications(self) -> "list[Application]":
        """Return all applications of the network, also those that have ended."""
        return [Application(self, row["name"]) for row in self.ask(ListApplications())["applications"]]

    def application(self, name: str) -> "Application":
        """Return the application of this name. Raises `CommandRefusedError` when there is none."""
        self.ask(Status(name))
        return Application(self, name)

    def nodes(self) -> Document:
        """Return the nodes that the agent knows."""
        document: Document = self.ask(Nodes())
        return document

    def write_reader_token(self, path: Path | str, log: str = "") -> Path:
        """Write a token that permits reading one sink log, or all, for an hour into a file of mode 0600; return its path."""
        return write_reader_token(self.ask, log, Path(path))

    def _submitted(
        self,
        target: "str | Callable[..., Topology]",
        settings: Mapping[str, object] | None,
        parallelism: "int | Mapping[str, RequestedParallelism] | None",
        name: str,
        executors: int,
        delivery: str,
        moves: str,
        placement: str,
        *,
        dry_run: bool,
    ) -> Document:
        asked = {"": parallelism} if isinstance(parallelism, int) else dict(parallelism or {})
        texts = {parameter: _text(value) for parameter, value in (settings or {}).items()}
        command = make_submission(
            target if isinstance(target, str) else _target_of(target), texts, asked,
            name=name, executors=executors, dry_run=dry_run, delivery=delivery, moves=moves,
            placement=placement,
        )  # fmt: skip
        document: Document = self.ask(command, SUBMIT_SECONDS)
        return document


class Application:
    """Application of a mesh; made by `MeshClient.submit` and `MeshClient.application`."""

    def __init__(self, mesh: MeshClient, name: str) -> None:
        self._mesh = mesh
        self.name = name

    def __repr__(self) -> str:
        return f"Application({self.name!r})"

    def status(self) -> Document:
        """Return its state, placement, rates and figures, as `agiledart status -o json`."""
        document: Document = self._mesh.ask(Status(self.name))
        return document

    @property
    def has_ended(self) -> bool:
        """Return whether it has finished, failed, or was stopped."""
        return self.status()["state"] in FINAL_STATES

    def wait(self, timeout: float | None = None) -> Document:
        """Return the status after its end, or after `timeout` seconds: then its state is not a final one."""
        document: Document = wait_for_end(self._mesh.ask, self.name, timeout)
        return document

    def logs(self, *, follow: bool = False) -> Iterator[LoggedLine]:
        """Yield the lines that its code printed or logged on all nodes; with `follow` also new ones, until it ends."""
        for response in log_responses(self._mesh.ask, self.name, follow=follow):
            yield from (LoggedLine(line["node"], line["step"], line["text"]) for line in response["lines"])

    def tap(self, step: str, limit: int | None = None) -> Iterator[TappedRow]:
        """Yield a live sample of the rows that leave a step, `limit` at most, until the application ends.

        The application never waits for a tap: at most 50 rows a second of each instance are sampled.
        """
        left = limit
        for response in tap_responses(self._mesh.ask, self.name, step):
            for row in response["rows"]:
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                yield TappedRow(row["node"], row["instance"], row["time_ms"], row["row"])
            if left == 0:
                return

    def scale(self, stage: str, instances: int) -> Document:
        """Change the number of instances of a stage while rows flow; return once it is changed."""
        document: Document = self._mesh.ask(ScaleStage(self.name, stage, instances), CHANGE_SECONDS)
        return document

    def move(self, stage: str, node: str) -> Document:
        """Move a stage to another node while rows flow; return once it runs there."""
        document: Document = self._mesh.ask(MoveStage(self.name, stage, node), CHANGE_SECONDS)
        return document

    def stop(self, *, now: bool = False) -> Document:
        """Drain the application and return its last status; with `now`, cut it."""
        document: Document = self._mesh.ask(Stop(self.name, now), STOP_SECONDS)
        return document

    def forget(self) -> None:
        """Remove the ended application from the list, and free its name. Rows that its sinks wrote stay."""
        self._mesh.ask(Forget(self.name))


def _text(value: object) -> str:
    """Return a setting as text; of truth values, the words that `--set` takes."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _target_of(function: "Callable[..., Topology]") -> str:
    """Return `FILE:NAME` of a function. Raises `ConfigurationError` for one that other machines could not load."""
    name = function.__qualname__
    if "<" in name or "." in name:
        raise ConfigurationError(f"{name} is defined inside another function or class; define it at the top of a file.")
    try:
        file = Path(inspect.getsourcefile(function) or "")
    except TypeError:
        file = Path()
    if not file.is_file() or file.name.startswith("ipykernel") or "ipykernel_" in str(file):
        raise ConfigurationError(
            f"{name} is in no file that other machines could load. In a notebook, begin its cell with "
            f"%%writefile rooms.py, then: mesh.submit('rooms.py:{name}')"
        )
    return f"{file}:{name}"
