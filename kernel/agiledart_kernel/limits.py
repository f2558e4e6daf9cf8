"""Every hard limit, with the reason for its number. A peer that goes over one is refused, not truncated."""

MAX_FRAME_BYTES = 16 << 20
"""Largest control frame: a bundle of user code (8 MiB) and room; checked before memory is allocated."""

MAX_HELLO_BYTES = 8 << 10
"""A HELLO holds a chain of at most six links of about 250 bytes."""

HELLO_TIMEOUT_SECONDS = 5.0
"""TLS and HELLO together must end within this time, or the connection is closed: a slow stranger holds nothing."""

MAX_UNVERIFIED_LINKS = 32
"""Connections for which TLS is done before they have proven themselves, at one time; others wait."""

MAX_UNVERIFIED_OF_ADDRESS = 4
"""Of these, from one IPv4 address or one /64 of IPv6: a stranger with one address keeps nobody else out."""

MAX_PENDING_CALLERS = 128
"""Connections that have not said enough to be worth TLS, or wait for a place: each costs a socket."""

MAX_LINKS = 512
"""Verified links of one agent. A quarter is kept for agents: users, however many, do not take a node out of its ring."""

MAX_LINKS_OF_KEY = 8
"""Links of one key to one service: an agent needs one, a command line one for each command that runs."""

MAX_READERS_FRAME_BYTES = 64 << 10
"""Largest frame of a peer that may not submit: a question, never a bundle."""

MAX_UNFINISHED_BYTES = 48 << 20
"""Bytes of frames that have begun and not ended, of all links of a process."""

MAX_UNFINISHED_SECONDS = 30.0
"""For a frame to come as a whole: a bundle of 8 MiB at 2.2 Mbit/s."""

MAX_CHAIN_LINKS = 6
MAX_LINK_BYTES = 512
"""A signed link is about 180 bytes; 512 leaves room for a scope of 128 characters."""

MAX_TOKEN_RECORD_BYTES = 256
MAX_RECEIPT_BYTES = 1_280
"""A HELLO has room for the largest chain, names and features, a token's record and two receipts; a receipt holds a chain itself, of
five links of usual length."""

MAX_REGISTERED = 20_000
"""Uses of tokens that a node remembers, about 2 MB: those it met, to let them in again without asking."""

MAX_BUNDLE_BYTES = 8 << 20
MAX_BUNDLE_FILES = 256
"""User code, not data: the largest example is 30 kB."""

MAX_RECORD_BYTES = 1 << 20
"""An application's record holds its specification, plan and history, not its code."""

MAX_RECORDS = 10_000
"""Records that one node keeps as root or replica."""

MAX_BANS = 10_000
"""Bans that a node keeps, 6 MB: more are a network that should be founded anew."""

MAX_PATH = 64
"""Nodes listed in a routed message; 2 × the digits of an id."""

MAX_STAGES = 256
MAX_PARALLELISM = 128
"""Instances of one stage: one per key group at the most."""

KEY_GROUPS = 128

MAX_BATCH_ROWS = 750
"""Rows in one data frame; longer frames stall the next process (2.9 ms instead of 0.15 ms for 2,000 rows)."""

MAX_BATCH_BYTES = 150_000
"""Bytes of rows at which a data frame is cut."""

MAX_COLUMN_BATCH_ROWS = 10_000
"""Rows of columns in one data frame: columns gain up to there, and a call of NumPy on them takes well under a millisecond."""

MAX_DATA_FRAME_BYTES = 4 << 20
"""Largest data frame a receiver takes: one single row may be large, but not without bound."""

MAX_COLUMN_BATCH_BYTES = MAX_DATA_FRAME_BYTES - (64 << 10)
"""Bytes of columns at which a data frame is cut; the rest is for what goes with them."""

CHANNEL_WINDOW_FRAMES = 16
"""Data frames of a channel that may be unacknowledged; 8 to 64 measured equally fast."""

REORDER_FRAMES = 64
"""How far ahead of the next one a frame of a channel may come and be kept: the window, its marks, and the parts of a batch of
large rows."""

KEPT_BYTES = 8 << 20
"""Bytes of frames that either end of a channel keeps: sent and not acknowledged, or come before their turn."""

LARGE_FRAME_BYTES = (KEPT_BYTES - MAX_DATA_FRAME_BYTES) // CHANNEL_WINDOW_FRAMES
"""Data frames above this are acknowledged one by one: a whole window of smaller ones, which a slow receiver may leave without a
word, still lets their sender make another frame."""

MAX_LINE_BYTES = 1 << 20
"""Longest line a text source reads; a longer one is malformed."""

MAX_LOG_LINES = 10_000
MAX_LOG_LINE_BYTES = 4_096
"""Lines that an agent keeps of what an application's user code prints."""

MAX_APPLICATION_NAME = 64
"""An application's name stands in file names and labels."""

MIN_LATENCY_LOG_BYTES = 64 << 10
MAX_LATENCY_LOG_BYTES = 1 << 30
"""What a node may be told to keep of the latencies sampled at one sink: a thousand samples at the least, twelve million at the
most."""

MAX_LATENCY_LOG_DAYS = 366
