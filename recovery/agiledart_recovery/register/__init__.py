"""Register of one run: ballots, voters, a proposer. Imports `wire` and the context; knows nothing of epochs."""
