"""Messages between an agent and its executors; both run the same program, so names never travel."""
