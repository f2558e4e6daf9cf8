"""Opening of outputs: within this process a local channel, else a channel on a route to the executor of the target."""

from collections.abc import Mapping

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.stage_plan import generation_of, index_of
from agiledart_executor.channels.data_links import ChannelSender, LinkEnd
from agiledart_executor.channels.local_channel import local_output
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import OutputEnd, RunningInstance
from agiledart_executor.programs.launchable import Launchable
from agiledart_executor.routes.data_routes import DataRoutes
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.frames import OVERTAKING_PROTOCOL, DataHeader
from agiledart_kernel.node_id import NodeId


class OutputOpener:
    """Opener of the outputs of one executor's instances.

    Args:
        host: of the instances.
        routes: to other executors.
        nodes: node of each instance, by stage and index.
    """

    def __init__(self, host: InstanceHost, routes: DataRoutes, nodes: Mapping[tuple[int, int], NodeId]) -> None:
        self._host, self._routes, self._nodes = host, routes, nodes

    async def open(
        self,
        code: Launchable,
        part: DeploymentPart,
        running: RunningInstance,
        channel: tuple[int, int],
        where: str | None,
    ) -> OutputEnd:
        """Open an output of an instance.

        Args:
            code: loaded user code with its plan.
            part: of the deployment.
            running: the instance.
            channel: edge, and index of the target.
            where: address of the target's executor; None when it is unknown.

        Raises:
            OperationFailed: the target is in another process and its address is unknown.
        """
        edge, target = channel
        stage = code.plan.edges[edge].target
        lazy = code.plan.edges[edge].lazy_watermarks
        local = self._host.running.get((stage, target))
        if local is not None:
            return local_output(self._host, running, local, (edge, target), code.codecs[edge], lazy_watermarks=lazy)
        if where is None:
            raise OperationFailed(f"{running.name}: the address of instance {target} downstream is unknown")
        node = self._nodes.get((stage, target), NodeId(0))
        route = await self._routes.to(where, node, code.plan.edges[edge].paths)
        header = DataHeader(
            application=part.number,
            attempt=part.attempt,
            edge=edge,
            source=index_of(running.index),
            source_generation=generation_of(running.index),
            target=index_of(target),
            target_generation=generation_of(target),
            epoch=0,
            frame=0,
            sequence=0,
            rows=0,
            schema=edge,
        )
        sender = ChannelSender(route.link, header, code.codecs[edge], running.name)
        is_first = not route.senders
        route.senders.append(sender)
        merges = code.plan.edges[edge].carries == "positions"
        knows = route.link.peer.hello.protocol_max >= OVERTAKING_PROTOCOL
        end = LinkEnd(sender, lazy_watermarks=lazy, overtakes=merges and knows)
        end.closed = lambda: route.senders.remove(sender)
        end.trouble_text, end.relay_text, end.route = (
            (lambda: route.waits_for),
            (lambda: route.relayed_by),
            (lambda: route.figures(counts=is_first)),
        )
        return end
