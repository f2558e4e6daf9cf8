"""Sources and sinks: inputs, outputs, refusals and counters."""
