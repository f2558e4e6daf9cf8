"""All messages that agents send each other over links of the service `overlay`."""

from agiledart_kernel.codec import Codec
from agiledart_node.reaching.reachability_messages import ReachabilityMessage
from agiledart_node.scheduling.messages import SchedulingMessage
from agiledart_node.wire.audit_messages import AuditMessage
from agiledart_node.wire.ban_messages import BanMessage
from agiledart_node.wire.change_messages import ChangeMessage
from agiledart_node.wire.checkpoint_messages import CheckpointMessage
from agiledart_node.wire.drain_messages import DrainMessage
from agiledart_node.wire.feed_messages import FeedMessage
from agiledart_node.wire.formation_messages import FormationMessage
from agiledart_node.wire.lease_messages import LeaseMessage
from agiledart_node.wire.log_list_messages import LogListMessage
from agiledart_node.wire.model_messages import ModelMessage
from agiledart_node.wire.mopa_messages import MopaMessage
from agiledart_node.wire.quorum_recovery_messages import QuorumRecoveryMessage
from agiledart_node.wire.recovery_messages import RecoveringMessage
from agiledart_node.wire.renewal_messages import RenewalMessage
from agiledart_node.wire.secret_messages import SecretMessage
from agiledart_overlay.protocol import OverlayMessage
from agiledart_recovery.wire.messages import RecoveryMessage

NodeMessage = (
    OverlayMessage
    | FormationMessage
    | SchedulingMessage
    | RecoveringMessage
    | RecoveryMessage
    | BanMessage
    | AuditMessage
    | SecretMessage
    | ModelMessage
    | FeedMessage
    | LogListMessage
    | LeaseMessage
    | MopaMessage
    | RenewalMessage
    | ChangeMessage
    | DrainMessage
    | CheckpointMessage
    | QuorumRecoveryMessage
    | ReachabilityMessage
)
NODE_CODEC: Codec[NodeMessage] = Codec(NodeMessage)
