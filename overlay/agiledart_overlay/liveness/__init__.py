"""Who is alive: probes, suspicion, incarnations, what others say. It imports tables, wire and state."""
