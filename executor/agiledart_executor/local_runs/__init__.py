"""A topology that runs in one process, without agents: `agiledart run`."""
