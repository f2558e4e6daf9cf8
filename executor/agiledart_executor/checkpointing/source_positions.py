"""Positions of sources at epochs: when an epoch is committed, the source need not keep what lies before its position."""

from agiledart_dataflow.plan.losses import PREVIOUS
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.wire.agent_messages import InstanceName


class SourcePositions:
    """Positions of the sources of one executor, by instance and epoch."""

    def __init__(self) -> None:
        self._places: dict[InstanceName, dict[int, bytes]] = {}  # of sources with a log, by epoch not yet committed
        self._committed: dict[InstanceName, bytes] = {}  # of sources that may have to rewind behind the committed epoch

    def prepared(self, name: InstanceName, epoch: int, place: bytes) -> None:
        """Keep the position of a source at an epoch until that epoch is committed."""
        self._places.setdefault(name, {})[epoch] = place

    def restored(self, name: InstanceName, place: bytes) -> None:
        """Keep the position of the committed epoch from which a source was restored."""
        self._committed[name] = place

    def committed(self, running: RunningInstance, epoch: int) -> None:
        """Cut a source's log at the position of the committed epoch, or acknowledge that position to a broker's group.

        An end, named by the epoch above the last barrier, waits for that epoch. Where the run may roll back to the previous epoch,
        the position of that epoch counts.
        """
        name, source = running.instance_name, running.source
        places = self._places.get(name, {})
        due = [earlier for earlier in places if earlier <= epoch]
        if not due or source is None:
            return
        place = places[max(due)]
        if any(stage.if_lost == PREVIOUS for stage in source.plan.stages):
            self._committed[name], place = place, self._committed.get(name, b"")
        if place:
            assert source.reader_abilities.trimmable is not None  # others have no position here
            source.reader_abilities.trimmable.trim(place)
        for earlier in due:
            del places[earlier]
