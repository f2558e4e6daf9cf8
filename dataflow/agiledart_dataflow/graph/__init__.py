"""Language of the users: a topology, streams and their verbs. It makes the steps of a plan and runs nothing."""
