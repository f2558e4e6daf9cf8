"""Every hard limit of recovery, with the reason for its number."""

MAX_RUNS = 256
"""Runs that one node votes for or hosts: each costs a voter's file and a timer."""

MAX_INSTANCES = 2_048
"""Instances of one run, sources and sinks among them."""

MAX_VOTERS = 5
"""More voters make every commit slower and no run safer than two lost voters."""

MAX_EDGES = 1_024
MAX_PLAN_BYTES = 256 << 10
"""What forming needs to start a plan; recovery only carries it."""

MAX_FRAGMENTS = 256
"""Symbols of GF(2^8): n = m + k can't be larger."""

MAX_REPLACED_FRAGMENTS = 1_024
"""Fragments with other holders that one message names: the rest is told with the next."""

MAX_CHAIN = 12
"""Elements that one snapshot may need: a whole one and at most ten changes, and one more while it is being folded."""

MAX_CHANGES = 64
"""Changes of a run that its register remembers: an hour of bursts makes about fifteen."""

MAX_EXTRA_EPOCHS = 3
"""Epochs before the one that carries a change, for what is left to hand over to be little."""

ATTEMPTS_PER_CONFIGURATION = 1_000_000
"""A run that an admin has go on without its lost voters begins with a life above all that those may have begun, or begin. A life
stands in 4 bytes of each data frame, so there is room for four thousand eras; a million lives take longer than a machine lasts."""

ROUNDS_PER_CONFIGURATION = 1 << 48
"""The same for ballots: none that the lost voters draw comes up to one of the next era."""

MAX_ROUND_STEP = 1 << 16
"""By so much one message may raise what a voter has promised: no stranger uses up the rounds of an era. A proposer that is farther
above comes up to itself in steps."""

MAX_CONFIGURATIONS = 4_000

MAX_EXCLUDED_VOTERS = 16
"""Voters that a run was made to go on without: they are told when they come back."""

MAX_REASON = 400
"""Letters of a reason that a peer tells."""

MAX_OPEN_EPOCHS = 8
"""Epochs of one life above the committed one of which answers are kept; an older one is passed over."""

SEAL_BYTES = 16
"""By which an element grows when it is sealed."""

MAX_HELD_FRAGMENTS = 65_536
"""Fragments that one node keeps for others."""
