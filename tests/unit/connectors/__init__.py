"""Sources and sinks: what they read, write, refuse and count."""
