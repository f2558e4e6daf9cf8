"""A host's side of standbys: which executors it holds ready for the next attempt, and the state in them.

| this host | what it holds after each commit |
|---|---|
| is a standby | executors with the committed state of the instances, which grows increment by increment |
| runs other instances of a run with standbys | executors that have loaded the code: all hosts are restarted in a take-over |
| neither, any more | nothing |

The awkward case: a commit while the last one is still being fetched. The driver carries out the newest request only.
"""

from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import RegisterValue


class StandbyHolding:
    """Executors and state of one run that one host holds ready."""

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self._held: asked.HoldStandby | None = None

    def update(self, value: RegisterValue) -> None:
        """Hold what the committed epoch of a value asks for; release everything when it asks for nothing here."""
        me = self._context.me.node
        mine = value.stands_by(me)
        if not mine and not (value.plan.wants_standby and me in value.plan.hosts):
            self.release()
            return
        saved = {saved.instance: saved for assignment in mine for saved in value.saved_for(assignment.instance)}
        wanted = asked.HoldStandby(self._run, value.attempt, value.plan, mine, tuple(saved.values()))
        if wanted != self._held:
            self._held = wanted
            self._context.do(wanted)

    def release(self) -> None:
        """Release everything that is held."""
        if self._held is not None:
            self._held = None
            self._context.do(asked.ReleaseStandby(self._run))
