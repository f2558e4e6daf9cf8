"""Response schemas of `submit` and of its dry run."""

from agiledart_node.wire.response import Response


class SubmitResponse(Response, frozen=True):
    """Response to `submit`: the application runs.

    Args:
        placement: stage → names of its nodes in the order of its instances.
        nodes: nodes that host an instance.
        coordinator: node that counts the ends of instances.
        paths: JOIN paths, source node first, sink node last.
        relaxed: placement rules dropped for lack of capacity: `same application`, `balance`.
        seconds_to_running: from the request to the moment when all instances listened.
        scheduler: node that deployed and serves it.
        queued_seconds: part of that time spent in the scheduler's pending queue.
        reasons: stage → why it is not on the node of its path; only such stages.
        data_paths: nodes that rows pass from each source to each sink; several nodes of one stage are separated by commas.
    """

    name: str
    version: int
    state: str
    placement: dict[str, list[str]]
    nodes: list[str]
    coordinator: str
    paths: list[list[str]]
    relaxed: list[str]
    strategy: str
    seconds_to_running: float
    scheduler: str = ""
    queued_seconds: float = 0.0
    reasons: dict[str, str] = {}
    data_paths: list[list[str]] = []


class CheckRow(Response, frozen=True):
    """A source or sink tested on its node, or (without a stage) a node on which the code does not load.

    Args:
        connector: the URL that it would read or write, as in `--set`.
        text: result of the test, or the error.
        guarantee: fate of its rows after a crash.
    """

    stage: str
    node: str
    connector: str
    is_good: bool
    text: str
    guarantee: str = ""


class DryRunResponse(Response, frozen=True):
    """Response to `submit --dry-run`: the planned placement; nothing was started.

    `digest`: of the specification, hex. Other fields as in `SubmitResponse`.
    """

    name: str
    dry_run: bool
    digest: str
    placement: dict[str, list[str]]
    paths: list[list[str]]
    relaxed: list[str]
    strategy: str
    reasons: dict[str, str] = {}
    data_paths: list[list[str]] = []
    checks: list[CheckRow] = []
