"""What users write: a topology, streams and their verbs. It makes steps of a plan and runs nothing."""
