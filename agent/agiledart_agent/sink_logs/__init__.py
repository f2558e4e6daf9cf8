"""The service of sink logs: readers, owners, titles, and the server of a node's logs."""
