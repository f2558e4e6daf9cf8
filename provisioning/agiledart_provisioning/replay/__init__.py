"""Replays: the policies act on a modelled cluster, and a ledger says what each of them would have cost."""
