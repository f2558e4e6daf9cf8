"""The process of a gate: it leases machines at a provider for the mesh of the agent beside it."""
