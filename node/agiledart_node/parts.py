"""`Parts`: what one node is made of, made in order, and joined where one part hears of what another does."""

from agiledart_kernel.observe import Observer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.asking.auditing import Auditing
from agiledart_node.asking.entrusting import Entrusting
from agiledart_node.asking.forgetting import Forgetting
from agiledart_node.asking.kept_checkpoints import KeptCheckpoints
from agiledart_node.asking.questions import Questions
from agiledart_node.asking.recovering_runs import RegainingRuns
from agiledart_node.asking.sharing import Sharing
from agiledart_node.asking.stopping import Stopping
from agiledart_node.asking.tapping import Tapping
from agiledart_node.asking.wanting_changes import WantingChanges
from agiledart_node.banning.banning import Banning
from agiledart_node.desk.config import NodeConfig
from agiledart_node.desk.desk import Desk
from agiledart_node.draining.draining import Draining
from agiledart_node.draining.relieving import Relieving
from agiledart_node.draining.wanting_drains import WantingDrains
from agiledart_node.forming.joining import Joining
from agiledart_node.forming.submission import Submissions
from agiledart_node.forming.surveying import Surveying
from agiledart_node.hosting.hosted import Hosted
from agiledart_node.hosting.hosting import Hosting
from agiledart_node.hosting.loading import Loading
from agiledart_node.hosting.watching import Watching
from agiledart_node.records.kinds import NAMES, NODE_NAMES, merge_of
from agiledart_node.records.merged_applications import applications
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.records.signatures import Signatures, VerifyOrder
from agiledart_node.records.sinks import SINKS, Sinks
from agiledart_node.recovering.change_requests import ChangeRequests
from agiledart_node.recovering.keeping_state import KeepingState
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.registering.registering import Registering
from agiledart_node.registering.renewing import Renewing
from agiledart_node.registering.uses import TOKENS, USES
from agiledart_node.scheduling.claims import CLAIMS
from agiledart_node.scheduling.schedulers import Schedulers
from agiledart_node.steering.self_scaling import SelfScaling

_KINDS = (SINKS, NAMES, NODE_NAMES, CLAIMS, USES, TOKENS)
"""Of records on the ring, beside those of applications."""


class Parts:
    """All parts of one node. They share the desk; each is given those that it calls.

    Args: as of `Node`.
    """

    def __init__(
        self,
        me: Peer,
        config: NodeConfig,
        random: RandomStream,
        observe: Observer,
        verify: VerifyOrder | None,
        secret: bytes,
    ) -> None:
        signatures = Signatures(verify)
        self.desk = desk = Desk(me, config, random, observe, merge_of((applications(signatures.judge), *_KINDS)))
        self.orders = orders = Orders(desk, verify, signatures)
        self.records = records = Records(desk, orders)
        self.hosting = hosting = Hosting(desk, orders, records)
        self.loading = Loading(desk, hosting)
        self.joining = Joining(desk)
        self.surveying = surveying = Surveying(desk, hosting)
        self.watching = watching = Watching(desk, records, hosting, orders)
        draws = RandomStream(random.bits(64), "recovery")
        self.recovering = Recovering(desk, records, hosting, draws, secret, orders.is_recovery)
        self.submissions = Submissions(
            desk,
            records,
            self.joining,
            surveying,
            watching,
            self.recovering,
            orders,
            RandomStream(random.bits(64), "tickets"),
        )
        self.schedulers = Schedulers(
            desk,
            records,
            hosting,
            watching,
            self.submissions,
            orders,
            RandomStream(random.bits(64), "scheduling"),
        )
        surveying.served = lambda: self.schedulers.served
        self._join_recovery()
        self.questions = Questions(desk, records, hosting, surveying, watching)
        self.sharing = Sharing(desk, records, self.questions, orders)
        self.forgetting = Forgetting(desk, records, self.questions, watching, orders)
        self.questions.on_old = self.forgetting.tidy
        self.tapping = Tapping(desk, self.questions, hosting)
        self._end_runs()
        self._take_changes()
        self.banning = Banning(desk, orders, verify)
        self.auditing, self.entrusting = Auditing(desk), Entrusting(desk, records, orders)
        self.renewing = Renewing(desk, records)
        self.registering = Registering(desk, records, orders, RandomStream(int(me.node), "registering"))
        self.sinks = Sinks(desk, records, orders)

    def _join_recovery(self) -> None:
        """Recovery hears of what breaks, ends and is written down; what it gives up is closed like everything else."""
        keeping = self.hosting.on_close

        def closed(hosted: Hosted) -> None:
            keeping(hosted)
            self.recovering.forget(hosted)

        self.hosting.on_close = closed
        self.recovering.closed = self.watching.closed
        self.recovering.noting.drain = self.watching.drain
        self.watching.on_broken = self.recovering.broken
        self.watching.changes_of = self.recovering.changes_known
        self.watching.on_record = self.recovering.noting.noted

    def _end_runs(self) -> None:
        """At a user's wish, also so that their state is kept."""
        about = self.desk, self.records
        self.kept = KeptCheckpoints(*about, self.questions, self.watching, self.orders)
        self.keeping = KeepingState(*about, self.recovering, self.orders)
        self.regaining = RegainingRuns(*about, self.recovering, self.orders)
        self.stopping = Stopping(*about, self.questions, self.watching, self.orders, self.kept)

    def _take_changes(self) -> None:
        """Stages of what runs change at a user's wish, or by themselves: `changes` where the run is coordinated."""
        about = self.desk, self.records
        self.changes = ChangeRequests(*about, self.recovering, self.orders, self.surveying.loads)
        self.steering = SelfScaling(*about, self.recovering, self.changes, self.surveying.loads)
        self.wanting = WantingChanges(*about, self.questions, self.watching, self.orders)
        self.recovering.scaling_of = self.steering.standings
        self.draining = Draining(*about, self.hosting, self.recovering, self.orders)
        self.relieving = Relieving(self.desk, self.recovering, self.changes)
        self.wanting_drains = WantingDrains(self.desk, self.orders)

    def violations(self) -> list[str]:
        """Of those that judge themselves."""
        judged = (self.desk, self.hosting, self.loading, self.schedulers)
        return [line for part in judged for line in part.violations()]
