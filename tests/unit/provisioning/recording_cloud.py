"""Driver in the shape of apache-libcloud's, on a simulated cloud. It records its calls, and any call can fail."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from libcloud.common.exceptions import BaseHTTPError
from libcloud.compute.base import Node, NodeLocation, NodeSize

from agiledart_cli.gate.helper_messages import CloudAnswer, CloudRequest
from agiledart_cli.gate.libcloud_helper import Credentials, answer
from agiledart_kernel.instants import SECOND
from agiledart_provisioning.providers.simulated_cloud import CloudHost, SimulatedCloud
from agiledart_provisioning.providers.simulated_provider import CloudFault

SECRET = "s3cr3t-of-the-account"
ERRORS: dict[CloudFault, Exception] = {
    CloudFault.QUOTA: BaseHTTPError(400, "InstanceLimitExceeded: your quota permits 0 more machines"),
    CloudFault.PAYMENT: BaseHTTPError(402, "your card was declined"),
    CloudFault.LOST_BEFORE: ConnectionResetError(f"connection reset; key {SECRET}"),
    CloudFault.LOST_AFTER: TimeoutError("no answer in time"),
}


class RecordingDriver:
    """Driver whose calls stand in `calls`; `fail` raises or returns before a call, `fail_after` when it is done."""

    def __init__(self, cloud: SimulatedCloud, clock: Callable[[], int]) -> None:
        self.cloud, self._clock = cloud, clock
        self.calls: list[str] = []
        self.keywords: dict[str, Any] = {}
        self.before: Callable[[str], None] = lambda call: None
        self.after: Callable[[str], None] = lambda call: None
        self.listed_after_ns, self.state = 0, "running"

    def _node(self, host: CloudHost) -> Node:
        made = datetime.fromtimestamp(host.created_ns / 1e9, UTC)
        driver: Any = self
        state: Any = "terminated" if host.ended_ns else self.state
        return Node(host.host_id, host.host_name, state, [], [], driver, created_at=made)

    def _begin(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)

    def list_locations(self) -> list[NodeLocation]:
        self._begin("list_locations")
        driver: Any = self
        return [NodeLocation("fra1", "Frankfurt", "DE", driver)]

    def list_sizes(self) -> list[NodeSize]:
        self._begin("list_sizes")
        driver: Any = self
        return [NodeSize("small", "small", 1024, 10, None, 0.006, driver)]

    def get_image(self, image: str) -> None:
        self._begin("get_image")
        if image != "debian":
            raise BaseHTTPError(404, "no such image")

    def list_nodes(self) -> list[Node]:
        """Return ended machines as well, as clouds do for a while."""
        self._begin("list_nodes")
        nodes = [self._node(host) for host in self.cloud.hosts.values() if host.listed_ns <= self._clock()]
        self.after("list_nodes")
        return nodes

    def create_node(self, **keywords: Any) -> Node:
        self._begin("create_node")
        self.keywords = keywords
        host = self.cloud.create(keywords["name"], "", self._clock(), self.listed_after_ns)
        self.after("create_node")
        return self._node(host)

    def destroy_node(self, node: Node) -> bool:
        self._begin("destroy_node")
        self.cloud.end(str(node.id), self._clock())
        self.after("destroy_node")
        return True


class FaultyHelper:
    """Helper in this process; each request takes the next fault, in the call that decides about it."""

    def __init__(
        self, driver: RecordingDriver, clock: Callable[[], int], sleep: Any, faults: tuple[CloudFault, ...]
    ) -> None:
        self._driver, self._clock, self._sleep, self._faults = driver, clock, sleep, list(faults)

    async def __call__(self, request: CloudRequest) -> CloudAnswer:
        fault = self._faults.pop(0) if self._faults else None
        if fault is CloudFault.SLOW:
            await self._sleep(20.0)
        self._driver.listed_after_ns = 60 * SECOND if fault is CloudFault.LISTED_LATE else 0
        deciding = {"lease": "create_node", "hosts": "list_nodes", "release": "destroy_node"}[request.verb]
        error = ERRORS.get(fault) if fault is not None else None

        def fail(call: str) -> None:
            if call == deciding and error is not None:
                raise error

        is_after = fault is CloudFault.LOST_AFTER
        self._driver.before = (lambda call: None) if is_after else fail
        self._driver.after = fail if is_after else lambda call: None
        return answer(request, self._driver, Credentials("key-of-the-account", SECRET), lambda: self._clock() / 1e9)
