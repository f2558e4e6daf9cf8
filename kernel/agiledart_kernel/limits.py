"""Every hard limit, with the reason for its number. A node refuses what exceeds a limit; it does not truncate it."""

MAX_FRAME_BYTES = 16 << 20
"""Largest control frame: a bundle of user code (8 MiB) and spare space. It is checked before memory is allocated."""

MAX_HELLO_BYTES = 8 << 10
"""Largest HELLO: it holds a chain of at most six links of about 250 bytes."""

HELLO_TIMEOUT_SECONDS = 5.0
"""TLS and HELLO together must end within this time, or the connection is closed: a slow stranger occupies nothing for long."""

MAX_UNVERIFIED_LINKS = 32
"""Connections in TLS or HELLO at one time, before their peers are verified. Others wait."""

MAX_UNVERIFIED_OF_ADDRESS = 4
"""Unverified connections from one IPv4 address or one /64 of IPv6: a stranger with one address keeps no other caller out."""

MAX_PENDING_CALLERS = 128
"""Connections that have not sent enough to be worth TLS, or wait for a handshake slot. Each costs a socket."""

MAX_LINKS = 512
"""Verified links of one agent. A quarter is reserved for agents, so users, however many, cannot push a node out of its ring."""

MAX_LINKS_OF_KEY = 8
"""Links of one key to one service. An agent needs one; a command line needs one for each command that runs."""

MAX_LINKS_OF_WORKERS = 32
"""Links of one key to one service of logs or feeds. Spark's worker processes have one each, and all have the key of one token."""

MAX_READERS_FRAME_BYTES = 64 << 10
"""Largest frame of a peer that may not submit: it sends a question, never a bundle."""

MAX_UNFINISHED_BYTES = 48 << 20
"""Bytes of incomplete frames, over all links of a process."""

MAX_UNFINISHED_SECONDS = 30.0
"""Longest time for one frame to arrive: a bundle of 8 MiB at 2.2 Mbit/s."""

MAX_CHAIN_LINKS = 6
MAX_LINK_BYTES = 512
"""Largest signed link. A usual one has about 180 bytes; 512 leave space for a scope of 128 characters."""

MAX_TOKEN_RECORD_BYTES = 256
MAX_RECEIPT_BYTES = 1_280
"""Largest receipt. A HELLO has space for the largest chain, names and features, a token's record and two receipts.

A receipt itself holds a chain of five links of usual length.
"""

MAX_REGISTERED = 20_000
"""Uses of tokens that a node remembers, about 2 MB, so that it admits known members again without a question to the ring."""

MAX_BUNDLE_BYTES = 8 << 20
MAX_BUNDLE_FILES = 256
"""Largest number of files in a bundle. A bundle is user code, not data: the largest example is 30 kB."""

MAX_RECORD_BYTES = 1 << 20
"""Largest record: an application's record holds its specification, plan and history, not its code."""

MAX_RECORDS = 10_000
"""Records that one node keeps as root or replica."""

MAX_BANS = 10_000
"""Bans that a node keeps, 6 MB. A network that needs more should be created anew."""

MAX_PATH = 64
"""Nodes listed in a routed message: 2 × the digits of an id."""

MAX_STAGES = 256
MAX_PARALLELISM = 128
"""Largest number of instances of one stage: one per key group at the most."""

KEY_GROUPS = 128

MAX_BATCH_ROWS = 750
"""Rows in one data frame. Longer frames stall the next process (2.9 ms instead of 0.15 ms for 2,000 rows)."""

MAX_BATCH_BYTES = 150_000
"""Bytes of rows at which a sender closes a data frame."""

MAX_COLUMN_BATCH_ROWS = 10_000
"""Rows of columns in one data frame. Columns gain up to this number, and a call of NumPy on them takes well under a millisecond."""

MAX_DATA_FRAME_BYTES = 4 << 20
"""Largest data frame that a receiver takes: a single row may be large, but not without bound."""

MAX_COLUMN_BATCH_BYTES = MAX_DATA_FRAME_BYTES - (64 << 10)
"""Bytes of columns at which a sender closes a data frame. The rest is for what goes with them."""

CHANNEL_WINDOW_FRAMES = 16
"""Data frames of a channel that may be unacknowledged. Windows of 8 to 64 measured equally fast."""

REORDER_FRAMES = 64
"""Largest distance ahead of the next expected frame at which a frame is buffered: the window, its watermarks, and the
parts of a batch of large rows.
"""

KEPT_BYTES = 8 << 20
"""Bytes of frames that either end of a channel buffers: sent and not acknowledged, or received ahead of their turn."""

LARGE_FRAME_BYTES = (KEPT_BYTES - MAX_DATA_FRAME_BYTES) // CHANNEL_WINDOW_FRAMES
"""Data frames above this size are acknowledged one by one.

A slow receiver may leave a whole window of smaller frames unacknowledged, and their sender can still make another
frame.
"""

MODEL_PART_BYTES = 1 << 20
"""Bytes of a model in one row: a larger one travels in parts, a quarter of the largest data frame each."""

MAX_MODEL_BYTES = 64 << 20
"""Largest model. Each instance that scores has two while one replaces the other, and snapshots hold it."""

MAX_LINE_BYTES = 1 << 20
"""Longest line that a text source reads. A longer one is malformed."""

MAX_LOG_LINES = 10_000
MAX_LOG_LINE_BYTES = 4_096
"""Longest line that an agent stores of the output of an application's user code; `MAX_LOG_LINES` is their number."""

MAX_APPLICATION_NAME = 64
"""Longest name of an application: it stands in file names and labels."""

MIN_LATENCY_LOG_BYTES = 64 << 10
MAX_LATENCY_LOG_BYTES = 1 << 30
"""Allowed size of the log of latencies that a node samples at one sink: a thousand samples at the least, twelve million
at the most.
"""

MAX_LATENCY_LOG_DAYS = 366
