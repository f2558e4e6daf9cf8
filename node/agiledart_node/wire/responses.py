"""Response schemas of the control API: JSON documents as types, from which `docs/reference/schemas/*.json` are generated.

Times are wall milliseconds since 1970-01-01 UTC (0: unknown); names of other quantities contain their unit. Fields are only added.
"""

import inspect

import msgspec

from agiledart_node.wire.admission_responses import (
    AuditResponse,
    BansResponse,
    RenewalResponse,
    SecretsResponse,
    TokensResponse,
)
from agiledart_node.wire.application_responses import (
    ForgetResponse,
    ListResponse,
    ShareResponse,
    StatusResponse,
    StopResponse,
)
from agiledart_node.wire.change_responses import ChangeResponse, DrainResponse
from agiledart_node.wire.checkpoint_responses import ExportResponse, QuorumRecoveryResponse, RemovalResponse
from agiledart_node.wire.feed_responses import FeedsResponse
from agiledart_node.wire.lease_responses import GateOrdersResponse, GatesResponse, LeaseResponse
from agiledart_node.wire.log_responses import LogsResponse, TapResponse
from agiledart_node.wire.model_messages import ModelResponse
from agiledart_node.wire.node_responses import InfoResponse, NodesResponse, RouteResponse
from agiledart_node.wire.placement_responses import PlacementResponse
from agiledart_node.wire.recovery_responses import CheckpointsResponse, RecoveryFactsResponse
from agiledart_node.wire.scaling_responses import ScalingResponse
from agiledart_node.wire.submission_responses import DryRunResponse, SubmitResponse
from agiledart_node.wire.summary_response import SummaryResponse

RESPONSES: dict[str, type[msgspec.Struct]] = {
    "submit": SubmitResponse,
    "submit-dry-run": DryRunResponse,
    "list": ListResponse,
    "status": StatusResponse,
    "summary": SummaryResponse,
    "stop": StopResponse,
    "share": ShareResponse,
    "forget": ForgetResponse,
    "bans": BansResponse,
    "audit": AuditResponse,
    "tokens": TokensResponse,
    "renewal": RenewalResponse,
    "secrets": SecretsResponse,
    "model": ModelResponse,
    "feeds": FeedsResponse,
    "explain-scaling": ScalingResponse,
    "explain-placement": PlacementResponse,
    "explain-recovery": RecoveryFactsResponse,
    "checkpoint": CheckpointsResponse,
    "checkpoint-export": ExportResponse,
    "checkpoint-remove": RemovalResponse,
    "checkpoint-recover": QuorumRecoveryResponse,
    "change": ChangeResponse,
    "drain": DrainResponse,
    "nodes": NodesResponse,
    "lease": LeaseResponse,
    "gate-orders": GateOrdersResponse,
    "provisioning": GatesResponse,
    "route": RouteResponse,
    "logs": LogsResponse,
    "tap": TapResponse,
    "info": InfoResponse,
}
"""Name of a schema file → the type of the response."""


def schema_text(name: str) -> str:
    """Return the JSON Schema (draft 2020-12) of a response, as in the documentation."""
    schema = msgspec.json.schema(RESPONSES[name])
    for definition in schema["$defs"].values():  # msgspec 0.22 keeps the indents of docstrings
        if "description" in definition:
            definition["description"] = inspect.cleandoc(definition["description"])
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
