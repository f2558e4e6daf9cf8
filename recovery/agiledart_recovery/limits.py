"""Hard limits of recovery, each with the reason for its number."""

MAX_RUNS = 256
"""Runs that one node votes for or hosts: each costs a voter's file and a timer."""

MAX_INSTANCES = 2_048
"""Instances of one run, sources and sinks included."""

MAX_STANDBY = 1
"""Standby hosts of one instance. A second one would help only against two losses between two commits."""

MAX_VOTERS = 5
"""Voters of a run. More than five make every commit slower and protect only against more than two lost voters."""

MAX_EDGES = 1_024
MAX_PLAN_BYTES = 256 << 10
"""Size of what the node needs to start a plan; recovery only carries it."""

MAX_FRAGMENTS = 256
"""Fragments of a snapshot. GF(2^8) has 256 symbols, so n = m + k can't be larger."""

MAX_REPLACED_FRAGMENTS = 1_024
"""Fragments with new replica nodes that one message names; the rest follows in the next message."""

MAX_CHAIN = 12
"""Snapshots that one saved state needs at most: a full one, ten increments, and one more during compaction."""

MAX_CONTENT_BYTES = 2_048
"""Size of a snapshot that the register itself holds: a position and counts. Each voter writes it at each epoch."""

MAX_CHANGES = 64
"""Changes of a run that its register remembers. An hour of bursts makes about fifteen."""

MAX_EXTRA_EPOCHS = 3
"""Extra epochs before the one that carries a change. They keep the state that is left to hand over small."""

ATTEMPTS_PER_CONFIGURATION = 1_000_000
"""Attempts per configuration. A run that an admin continues without its lost voters starts at an attempt above all that the lost
voters may have begun.

An attempt takes 4 bytes of each data frame, so about four thousand configurations fit. No machine lasts for a million attempts.
"""

ROUNDS_PER_CONFIGURATION = 1 << 48
"""Rounds per configuration, for ballots. No ballot that the lost voters draw reaches one of the next configuration."""

MAX_ROUND_STEP = 1 << 16
"""Rounds by which one message may raise what a voter has promised, so that no stranger uses up the rounds of a configuration.

A proposer whose ballot is farther above is refused, and approaches its ballot in steps.
"""

MAX_CONFIGURATIONS = 4_000

MAX_EXCLUDED_VOTERS = 16
"""Voters that a run was continued without. The coordinator notifies them when they come back."""

MAX_REASON = 400
"""Letters of a reason that a peer sends."""

MAX_OPEN_EPOCHS = 8
"""Epochs of one attempt above the committed one for which a node keeps answers. It drops those of older epochs."""

SEAL_BYTES = 16
"""Bytes that encryption adds to a snapshot."""

MAX_HELD_FRAGMENTS = 65_536
"""Fragments that one node stores for others."""

MAX_DEALERS = 16
"""Hosts whose shares of a run's key one voter stores. Honest hosts deal the same shares, so one host suffices."""

DEALS_OF_DEALER = 2
"""Shares of one dealer that a voter stores: the newest one may not have reached the other voters yet."""
