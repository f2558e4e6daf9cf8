"""The register of one run: ballots, a voter's side, a proposer's side. Imports `wire` and the desk; knows nothing of epochs."""
