"""Records on the ring: an application's life and state, its summary, where the logs of its sinks lie."""
