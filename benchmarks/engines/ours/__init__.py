"""The same jobs as our users write them, and the programs that start them."""
