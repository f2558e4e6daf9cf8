"""TLS leaves: whose key a certificate proves, and what is not accepted as proof."""

import subprocess
import sys
from datetime import UTC, datetime
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agiledart_kernel.errors import Refused
from agiledart_transport import certificates
from agiledart_transport.certificates import (
    LEAF_DAYS,
    MAX_CERTIFICATE_BYTES,
    check_signature,
    make_credentials,
    peer_id_text,
    verify_peer_certificate,
)
from agiledart_transport.tls_contexts import TlsCredentials, client_context, server_context
from tests.keys import NOW, key_of, public_of

NETWORK = public_of("authority")


def leaf_of(credentials: TlsCredentials) -> x509.Certificate:
    return x509.load_pem_x509_certificate(credentials.pem)


def der_of(credentials: TlsCredentials) -> bytes:
    return leaf_of(credentials).public_bytes(serialization.Encoding.DER)


GOOD = make_credentials(key_of("pi"), NETWORK, NOW)


def test_a_leaf_proves_the_nodes_key() -> None:
    assert verify_peer_certificate(der_of(GOOD)) == public_of("pi")
    assert len(der_of(GOOD)) < MAX_CERTIFICATE_BYTES // 4


def test_each_leaf_has_a_key_of_its_own_and_lasts_a_month() -> None:
    again = make_credentials(key_of("pi"), NETWORK, NOW)
    assert leaf_of(again).public_key() != leaf_of(GOOD).public_key()
    assert GOOD.expires == NOW + LEAF_DAYS * 86_400
    assert leaf_of(GOOD).not_valid_after_utc == datetime.fromtimestamp(GOOD.expires, UTC)


def test_the_networks_ca_follows_from_its_id_alone() -> None:
    assert make_credentials(key_of("other"), NETWORK, NOW + 5).network_ca == GOOD.network_ca
    assert make_credentials(key_of("pi"), public_of("another"), NOW).network_ca != GOOD.network_ca


def test_credentials_hide_their_key() -> None:
    assert b"PRIVATE KEY" in GOOD.pem
    assert "PRIVATE" not in repr(GOOD) + str(GOOD) + f"{GOOD}"


@pytest.mark.parametrize("der", [None, b"", b"\x30\x82", bytes(100), b"\x30" * (MAX_CERTIFICATE_BYTES + 1)])
def test_bytes_that_are_no_certificate_are_refused(der: bytes | None) -> None:
    with pytest.raises(Refused) as refusal:
        verify_peer_certificate(der)
    assert refusal.value.reason == "certificate"


def resigned(change: bytes | None) -> bytes:
    """A leaf of the network with another SignedKey extension (None: without): everybody can make one."""
    ca_key, ca = certificates._network_ca(NETWORK)
    leaf = leaf_of(GOOD)
    builder = x509.CertificateBuilder(
        ca.subject, leaf.subject, ec.generate_private_key(ec.SECP256R1()).public_key(), 7, leaf.not_valid_before_utc,
        leaf.not_valid_after_utc,
    )  # fmt: skip
    if change is not None:
        builder = builder.add_extension(x509.UnrecognizedExtension(certificates._SIGNED_KEY, change), critical=False)
    return builder.sign(ca_key, None).public_bytes(serialization.Encoding.DER)


def extension_of_good() -> bytes:
    value = leaf_of(GOOD).extensions.get_extension_for_oid(certificates._SIGNED_KEY).value
    assert isinstance(value, x509.UnrecognizedExtension)
    return value.value


@pytest.mark.parametrize(
    "change",
    [
        None,
        b"",
        bytes(106),
        extension_of_good(),  # copied: signed for another leaf key
        extension_of_good() + b"\0",
        b"\x30\x68\x04\x24\x08\x01\x12\x20" + b"\x01" + bytes(31) + b"\x04\x40" + bytes(64),  # a key of small order
    ],
    ids=["none", "empty", "zeros", "copied", "longer", "weak key"],
)
def test_a_leaf_without_a_valid_signed_key_is_refused(change: bytes | None) -> None:
    with pytest.raises(Refused) as refusal:
        verify_peer_certificate(resigned(change))
    assert refusal.value.reason == "certificate"


@pytest.mark.filterwarnings("ignore:Parsed a")
def test_damage_proves_no_other_key_and_raises_no_other_error() -> None:
    draw, der = Random(2), der_of(GOOD)
    for _ in range(2_000):
        damaged = bytearray(der)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        try:
            key = verify_peer_certificate(bytes(damaged))
        except Refused as refusal:
            assert refusal.reason == "certificate"  # noqa: PT017  anything else raised fails the test by itself
        else:
            assert key == public_of("pi")  # the damage was in what TLS checks: names, dates, the CA's signature


def test_a_known_peer_has_its_id() -> None:
    """Test vector of the libp2p specification of peer ids: an Ed25519 key and its base58 form."""
    key = bytes.fromhex("1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e")
    assert peer_id_text(key) == "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"
    assert all(peer_id_text(public_of(name)).startswith("12D3Koo") for name in "abc")


def test_signatures_are_verified() -> None:
    signature = key_of("pi").sign(b"message")
    assert check_signature(public_of("pi"), signature, b"message")
    assert not check_signature(public_of("pi"), signature, b"massage")
    assert not check_signature(public_of("no"), signature, b"message")
    assert not check_signature(b"short", signature, b"message")
    assert not check_signature(public_of("pi"), b"short", b"message")


def test_contexts_require_tls_1_3_and_a_certificate() -> None:
    import ssl

    for context in (server_context(GOOD), client_context(GOOD)):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED
    assert server_context(GOOD).num_tickets == 0


def test_a_key_is_loaded_on_platforms_without_memory_files(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    import os
    import tempfile

    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    client_context(GOOD)
    assert os.listdir(str(tmp_path)) == []


def test_an_executors_half_of_the_package_loads_no_cryptography() -> None:
    code = (
        "import sys, agiledart_transport.connecting, agiledart_transport.tls_contexts, agiledart_kernel.services\n"
        "heavy = [m for m in ('cryptography', 'uvloop', 'click', 'rich') if m in sys.modules]\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
