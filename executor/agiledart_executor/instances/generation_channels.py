"""Channels of instances whose stage changes its generation at a barrier: old ones end, and rows go to the new instances."""

from collections.abc import Callable

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.runtime.generation_handover import ChangeFailed
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_transport.link import Cork


class GenerationChannels:
    """Channels of the instances of one executor, as far as barriers change their generations.

    Args:
        cork: of the links that carry their frames.
        wake: schedules an instance to work.
        fail_change: fails an instance so that the run restarts from its last epoch.
    """

    def __init__(
        self,
        cork: Cork,
        wake: Callable[[RunningInstance], None],
        fail_change: Callable[[RunningInstance, str], None],
    ) -> None:
        self._cork, self._wake, self._fail_change = cork, wake, fail_change

    def offer_barrier(self, running: RunningInstance, edge: int, source: int, batch: Batch) -> None:
        """Give an instance a barrier; one that ends the generation of its channel admits what waited for it."""
        assert running.instance is not None  # only sources have none, and they receive no frames
        try:
            running.instance.offer_barrier(edge, source, batch)
        except ChangeFailed as error:
            self._fail_change(running, f"{running.name}: {error}")
            return
        if batch.change and running.instance.is_leaving(edge, source):
            running.leaving.append((edge, source))
            self.admit_waiting(running)

    def admit_waiting(self, running: RunningInstance) -> None:
        """Give an instance the batches that waited for its begin, or for the barrier of their channel's generation."""
        instance = running.instance
        assert instance is not None  # only sources have none, and they receive no frames
        for (edge, source), end in list(running.inputs.items()):
            if end.waiting is not None and instance.takes_in(edge, source):
                waiting, end.waiting = end.waiting, None
                for batch in waiting:
                    if batch.barrier:
                        self.offer_barrier(running, edge, source, batch)
                    else:
                        instance.offer(edge, source, batch)
        self._wake(running)

    def forget_old(self, running: RunningInstance) -> None:
        """Forget channels of ended generations: inputs once all is taken, outputs once all is acknowledged."""
        instance = running.instance
        for channel in tuple(running.leaving):
            if instance is not None and (end := running.inputs.get(channel)) is not None:
                end.taken(instance.consumed(*channel), finished=True)
                if instance.forget(*channel):
                    del running.inputs[channel]
                    running.leaving.remove(channel)
        for channel, output in list(running.outputs.items()):
            if output.is_old and output.channel.idle:
                output.close()
                del running.outputs[channel]
                running.take_outputs()
        running.changeover_pauses.look(running.outputs)
        running.has_old = running.changeover_pauses.watches or any(output.is_old for output in running.outputs.values())

    def acknowledge_all(self, running: RunningInstance) -> None:
        """Acknowledge all input of an instance whose generation ends, before it saves itself.

        Its senders take that acknowledgement as the time at which it stopped.
        """
        assert running.instance is not None  # sources never change
        for (edge, source), end in running.inputs.items():
            if end.waiting is None:
                end.taken(running.instance.consumed(edge, source), finished=True)
        self._cork.flush()

    def redirect_outputs(self, running: RunningInstance) -> None:
        """Follow a plan that a barrier has brought: rows go to its instances, and old outputs only deliver what was sent."""
        part = running.instance or running.source
        assert part is not None
        left: dict[tuple[int, int], None] = {}
        for (edge, target), output in running.outputs.items():
            was_old, output.is_old = output.is_old, target not in part.plan.targets(edge, running.index)
            if output.is_old and not was_old:
                left[edge, target] = None
        running.changeover_pauses.plan_changed(part.plan, running.outputs, left)
        running.has_old = running.changeover_pauses.watches or any(output.is_old for output in running.outputs.values())
