"""Service of sink logs: readers, owners, ownership proofs, and the server of a node's logs."""
