"""What a node does for applications of others: it starts and watches their instances and says what became of them."""
