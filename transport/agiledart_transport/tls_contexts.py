"""TLS contexts from PEM. Needs only `ssl`, so that an executor stays small: its agent makes the certificates.

TLS proves the peer's key and hides the bytes. It does not say what the key may do: that is the chain of grants in
HELLO.
"""

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec


class TlsCredentials(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one end of a link shows. `pem` holds a private key: it is never logged, printed or written to a disk.

    Args:
        pem: TLS leaf certificate and its key.
        network_ca: certificate of the network's CA, which is derived from the public network id and proves nothing; it
            only makes both TLS stacks ask for the peer's certificate and hand it over.
        expires: seconds since 1970 at which the leaf must have been made anew.
    """

    pem: bytes
    network_ca: str
    expires: int = 0

    def __repr__(self) -> str:
        return f"Credentials(expires={self.expires})"


@contextlib.contextmanager
def _readable_as_file(secret: bytes) -> Iterator[str]:
    """A path under which OpenSSL can read a secret once; in memory where the system can, else in a 0600 file for a
    moment.
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
    """Show these credentials in the handshakes to come; links that exist are not touched. So a leaf is renewed in
    place.
    """
    with _readable_as_file(credentials.pem) as path:
        context.load_cert_chain(path)


def _context(credentials: TlsCredentials, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = (
        False  # a peer is known by its key, which `judge` takes from the certificate, not by a name
    )
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=credentials.network_ca)
    load_credentials(context, credentials)
    return context


def server_context(credentials: TlsCredentials) -> ssl.SSLContext:
    """The context of a listener: TLS 1.3 only, a certificate of our network required, no resumption."""
    context = _context(credentials, ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # a resumed session would skip the certificate that we judge
    return context


def client_context(credentials: TlsCredentials) -> ssl.SSLContext:
    """The context of a dialer: TLS 1.3 only, a certificate of our network required."""
    return _context(credentials, ssl.PROTOCOL_TLS_CLIENT)
