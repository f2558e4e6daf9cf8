"""Progress of a connection as the kernel tells it."""

import socket

from agiledart_transport.tcp_progress import progress_of


def test_the_kernel_counts_acknowledged_bytes_and_knows_a_round_trip() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        receiver, _ = server.accept()
        with receiver:
            sender.sendall(b"x" * 1_000)
            assert receiver.recv(1_000, socket.MSG_WAITALL)
            receiver.sendall(b"y")
            assert sender.recv(1)
            progress = progress_of(sender)
    assert progress.acknowledged >= 1_000
    assert progress.queued == 0
    assert 0 < progress.round_trip_us < 1_000_000
