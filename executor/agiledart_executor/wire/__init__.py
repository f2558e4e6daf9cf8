"""Messages between an agent and its executors. Both run the same program, so names never travel."""
