"""All inputs of authorisation, changed at random: links, orders, bans, receipts, tokens, tickets, renewals, records.

A changed input is refused by one of our errors; a signed input keeps its meaning or has none. A second each;
`make soak` gives each ten minutes, or AGILEDART_FUZZ_SECONDS.
"""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, seed, settings

from agiledart_agent.admission.members import ROW_BYTES, RegisteredKeys
from agiledart_agent.circuits.relay_messages import (
    AddressAnswer,
    CircuitBooked,
    CircuitRefused,
    RelayMessage,
    RequestAddress,
    RequestCircuit,
)
from agiledart_agent.control.control_api import CONTROL
from agiledart_agent.identity.identity import Issuer
from agiledart_agent.identity.tokens import create_token, parse_token
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.bans import parse_ban
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, Refused, RemoteProtocolError
from agiledart_kernel.frames import Hello, decode_hello, encode_hello
from agiledart_kernel.grants import Quota, decode_link, verify_chain
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.registrations import (
    RegistrationReceipt,
    TokenRecord,
    sign_receipt,
    sign_token_record,
    verify_receipt,
    verify_token_record,
)
from agiledart_kernel.signed_commands import (
    parse_signed_command,
    quota_of_signer,
    scope_of_signer,
    sign_command,
    signer_of,
    verify_command,
)
from agiledart_node.protocol import NODE_CODEC
from agiledart_node.records.application import RECORD_CODEC, ApplicationRecord, application_key
from agiledart_node.records.command_verifier import command_terms
from agiledart_node.records.merged_applications import APPLICATIONS
from agiledart_node.records.record_kind import merge_of
from agiledart_node.records.signed_entries import merged_signed_entries, without_unproven_rights
from agiledart_node.records.sink_directory import SINK_CODEC, SINKS, SinkRecord, sink_key
from agiledart_node.registering.token_uses import TOKENS, USES, USES_CODEC, TokenUse, TokenUses, decoded_uses, uses_key
from agiledart_node.wire.audit_messages import AuditFilter, QueryAudit
from agiledart_node.wire.ban_messages import BanDigest, BanNews
from agiledart_node.wire.commands import Command, RenewUserMembership, SetBan, SetSecret, ShareApplication, Stop
from agiledart_node.wire.control_messages import ControlRequest
from agiledart_node.wire.formation_messages import RequestStop
from agiledart_node.wire.renewal_messages import RenewalReply, RequestRenewal
from agiledart_node.wire.secret_messages import QuerySecrets, SecretStored, StoreSecret
from agiledart_transport.certificates import check_signature
from agiledart_transport.circuits import preface, ticket_of
from agiledart_transport.sealing import seal, unseal
from tests.keys import HOUR, NOW, Authority, key_of, public_of
from tests.properties.damage import MESSAGE_PACK, damaged

SECONDS: Final = 1.0
SOAK_SECONDS: Final = float(os.environ.get("AGILEDART_FUZZ_SECONDS", "600"))
OURS: Final = (Refused, RemoteProtocolError, OperationFailed)

NET = Authority()
TOKEN = b"t" * 32
ANN = NET.member("ann", "submitter", scope="app:x")
QUOTA = NET.link("authority", (), "sue", "act", "submitter", quota=Quota(applications=2))
ME = Peer(NodeId(7), 1, "a1", "10.0.0.1:1", "z", "h")


def signed_command(command: Command, holder: str = "ann", role: Any = "submitter", at: int = 0) -> bytes:
    terms = command_terms(command)
    assert terms is not None
    wall_ms = NOW * 1_000 + at
    return sign_command(key_of(holder).sign, NET.member(holder, role), NET.network, terms, wall_ms, bytes)


STOP, SHARE = Stop("x", now=True), ShareApplication("x", public_of("bob").hex())
BAN = SetBan(public_of("eve").hex(), NOW + HOUR, "stolen")
ORDERS = [signed_command(STOP), signed_command(SHARE), signed_command(BAN, "root", "admin")]
RECEIPT = RegistrationReceipt(NET.network, TOKEN, public_of("pi"), 7, NOW)
RECORD = TokenRecord(TOKEN, 20, NOW + HOUR, HOUR)
SIGNED_RECEIPT = sign_receipt(key_of("pi2").sign, NET.member("pi2"), RECEIPT)
SIGNED_RECORD = sign_token_record(key_of("authority").sign, RECORD)
HELLO = Hello(
    service="control", chain=ANN, name="pi", token=SIGNED_RECORD, receipt=SIGNED_RECEIPT, welcome=SIGNED_RECEIPT
)
APPLICATION = ApplicationRecord(
    "x", 1, 1, 1, "stopped", ME, owner_key=public_of("ann"), signed_command=signed_command(STOP),
    signed_entries=(signed_command(STOP, at=1), signed_command(SHARE)),
)  # fmt: skip
USED = TokenUses(TOKEN, 20, NOW, "agent", "", (TokenUse(public_of("pi"), NOW),))
LOG = SinkRecord("log", "x", 1, ME, NOW, "id", b"{}", 1, public_of("ann"), signed_command(STOP))
PART = DeploymentPart(
    "x",
    1,
    1,
    1,
    b"s",
    b"p",
    b"c",
    (ME,),
    (),
    (),
    (),
    ME,
    ME,
    signed_command=signed_command(STOP),
    owner=public_of("ann"),
    signed_entries=(signed_command(SHARE),),
)
RELAYED: Codec[RelayMessage] = Codec(RelayMessage)
PARTS: Codec[DeploymentPart] = Codec(DeploymentPart)
MERGE = merge_of((APPLICATIONS, SINKS, USES, TOKENS))
ISSUER = Issuer(NET.network, key_of("authority").sign, NET.network, ())
TOKEN_TEXT = create_token(ISSUER, now_seconds=NOW, addresses=["10.0.0.1:7400"])
SEALED = seal(public_of("pi"), b"x", b"a password")


def believed(raw: bytes) -> Any:
    try:
        return verify_command(NET.network, raw, check_signature)
    except Refused:
        return None


# ---- what becomes of bytes: nothing, one of our errors, or what was signed


def a_link(raw: bytes) -> None:
    decode_link(raw)


def a_chain(raw: bytes) -> None:
    found = verify_chain(NET.network, (ANN[0], raw), public_of("ann"), NOW, check_signature)
    assert raw == ANN[1]
    assert (found.role, found.scope) == ("submitter", "app:x")


def an_order(raw: bytes) -> None:
    parse_signed_command(raw), signer_of(raw), quota_of_signer(raw), scope_of_signer(raw)
    merged_signed_entries((raw,), tuple(ORDERS))
    found = verify_command(NET.network, raw, check_signature)
    assert (found.signed_command, found.grant) in [(one.signed_command, one.grant) for one in map(believed, ORDERS)]


def a_ban(raw: bytes) -> None:
    ban = parse_ban(raw, verify_command(NET.network, raw, check_signature))
    assert (ban.target, ban.until, ban.reason) == (public_of("eve"), NOW + HOUR, "stolen")


def a_receipt(raw: bytes) -> None:
    assert verify_receipt(NET.network, raw, check_signature)[0] == RECEIPT


def a_record_of_a_token(raw: bytes) -> None:
    assert verify_token_record(raw, TOKEN, NET.network, check_signature) == RECORD


def a_hello(raw: bytes) -> None:
    decode_hello(raw)


def a_token(raw: bytes) -> None:
    assert parse_token(raw.decode("latin-1")).record.uses == 20


def a_request(raw: bytes) -> None:
    if isinstance(asked := CONTROL.decode(raw), ControlRequest):
        command_terms(asked.command)


def a_message(raw: bytes) -> None:
    NODE_CODEC.decode(raw)


def a_relays(raw: bytes) -> None:
    RELAYED.decode(raw)


def a_ticket(raw: bytes) -> None:
    assert len(ticket_of(raw)) == 16


def a_secret(raw: bytes) -> None:
    assert unseal(key_of("pi"), b"x", raw) == b"a password"


def a_member(raw: bytes) -> None:
    members = RegisteredKeys()
    members.read([raw[at : at + ROW_BYTES] for at in range(0, len(raw), ROW_BYTES)])
    again = RegisteredKeys()
    again.read(members.rows())
    assert again.rows() == members.rows()


def an_application(raw: bytes) -> None:
    MERGE(application_key("x"), RECORD_CODEC.encode(APPLICATION), raw)
    record = RECORD_CODEC.decode(raw)
    if record.is_consistent():
        seen = without_unproven_rights(record, believed, believed)
        assert seen.owner_key in (b"", public_of("ann"))
        assert set(seen.shared_keys) <= {public_of("bob")}
        assert without_unproven_rights(seen, believed, believed).owner_key == seen.owner_key


def a_log(raw: bytes) -> None:
    MERGE(sink_key("log"), raw, SINK_CODEC.encode(LOG))
    SINK_CODEC.decode(raw)


def uses(raw: bytes) -> None:
    MERGE(uses_key(TOKEN), USES_CODEC.encode(USED), raw)
    decoded_uses(TOKEN, raw)


def a_part(raw: bytes) -> None:
    PARTS.decode(raw)


MESSAGES = [
    RequestRenewal(1, ANN, SIGNED_RECORD), RenewalReply(1, ANN, ""), BanNews((ORDERS[2],)), BanDigest(bytes(64)),
    StoreSecret(1, SetSecret("x", ME.node.hex, "s", SEALED), ORDERS[0]), SecretStored(1, ""), QuerySecrets(1),
    QueryAudit(1, AuditFilter(), 0, 10, True), RequestStop(1, "x", 1, True, "ann", ORDERS[0]),
]  # fmt: skip
RELAYS: list[RelayMessage] = [
    RequestCircuit(1, NodeId(9), "x", NodeId(5), (NodeId(7),)), CircuitBooked(1, b"k" * 16, 3), CircuitRefused(1, "no way"),
    RequestAddress(1, "x", NodeId(5)), AddressAnswer(1, "10.0.0.1:7400"),
]  # fmt: skip
SAMPLES: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "links": (a_link, [*ANN, *QUOTA]),
    "chains": (a_chain, [ANN[1]]),
    "orders": (an_order, ORDERS),
    "bans": (a_ban, [ORDERS[2]]),
    "receipts": (a_receipt, [SIGNED_RECEIPT]),
    "records of tokens": (a_record_of_a_token, [SIGNED_RECORD]),
    "hellos": (a_hello, [encode_hello(HELLO)]),
    "tokens": (a_token, [TOKEN_TEXT.encode()]),
    "requests": (a_request, [CONTROL.encode(ControlRequest(1, one, ORDERS[0])) for one in (STOP, SHARE, BAN,
    RenewUserMembership(ANN, SIGNED_RECORD))]),
    "messages": (a_message, [NODE_CODEC.encode(one) for one in MESSAGES]),  # type: ignore[arg-type]
    "relays": (a_relays, [RELAYED.encode(one) for one in RELAYS]),
    "tickets": (a_ticket, [preface(b"k" * 16)]),
    "secrets": (a_secret, [SEALED]),
    "members": (a_member, [TOKEN + public_of("pi") + bytes(ROW_BYTES - 64)]),
    "applications": (an_application, [RECORD_CODEC.encode(APPLICATION)]),
    "logs": (a_log, [SINK_CODEC.encode(LOG)]),
    "uses": (uses, [USES_CODEC.encode(USED)]),
    "parts": (a_part, [PARTS.encode(PART)]),
}  # fmt: skip


def fuzz(name: str, seconds: float) -> None:
    """Rounds of examples until the time is over."""
    function, samples = SAMPLES[name]

    @settings(max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(damaged(samples, MESSAGE_PACK))
    def test(raw: bytes) -> None:
        with contextlib.suppress(*OURS):
            function(raw)

    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        seed(number)(test)()
        number += 1


@pytest.mark.parametrize("name", SAMPLES)
def test_the_valid_inputs_are_accepted(name: str) -> None:
    function, samples = SAMPLES[name]
    for sample in samples:
        function(sample)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_randomly_changed_inputs_are_refused_or_equal(name: str) -> None:
    fuzz(name, SECONDS)


@pytest.mark.soak
@pytest.mark.timeout(2 * SOAK_SECONDS + 60)
@pytest.mark.parametrize("name", SAMPLES)
def test_randomly_changed_inputs_are_refused_or_equal_in_a_long_run(name: str) -> None:
    fuzz(name, SOAK_SECONDS)
