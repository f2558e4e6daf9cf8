"""TLS contexts from PEM. They need only `ssl`, so that an executor stays small: its agent makes the certificates.

TLS proves the peer's key and hides the bytes. The chain of grants in HELLO says what the key may do.
"""

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec


class TlsCredentials(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Credentials that one end of a link presents. `pem` holds a private key: it is never logged, printed or written to a disk.

    Args:
        pem: TLS leaf certificate and its key.
        network_ca: certificate of the network's CA, which is derived from the public network id and proves nothing. It
            only makes both TLS stacks request the peer's certificate and pass it on.
        expires: seconds since 1970 at which the leaf must have been renewed.
    """

    pem: bytes
    network_ca: str
    expires: int = 0

    def __repr__(self) -> str:
        return f"Credentials(expires={self.expires})"


@contextlib.contextmanager
def _readable_as_file(secret: bytes) -> Iterator[str]:
    """Yield a path under which OpenSSL can read a secret once.

    The secret is in memory where the system can do that, else in a 0600 file for a moment.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        with os.fdopen(os.memfd_create("agiledart", os.MFD_CLOEXEC), "wb") as file:
            file.write(secret)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile(prefix="agiledart-") as file:  # mkstemp makes it 0600
        file.write(secret)
        file.flush()
        yield file.name


def load_credentials(context: ssl.SSLContext, credentials: TlsCredentials) -> None:
    """Present these credentials in later handshakes. Existing links are not touched, so a leaf is renewed in place."""
    with _readable_as_file(credentials.pem) as path:
        context.load_cert_chain(path)


def _context(credentials: TlsCredentials, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = (
        False  # a peer is known by its key, which the verifier takes from the certificate, not by a name
    )
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=credentials.network_ca)
    load_credentials(context, credentials)
    return context


def server_context(credentials: TlsCredentials) -> ssl.SSLContext:
    """Return the context of a listener: TLS 1.3 only, a certificate of our network required, no resumption."""
    context = _context(credentials, ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # a resumed session would skip the certificate that we verify
    return context


def client_context(credentials: TlsCredentials) -> ssl.SSLContext:
    """Return the context of a dialer: TLS 1.3 only, a certificate of our network required."""
    return _context(credentials, ssl.PROTOCOL_TLS_CLIENT)
