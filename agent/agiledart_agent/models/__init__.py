"""Files of models on this node: taken from users, fetched from other nodes by their hash, read by executors."""
