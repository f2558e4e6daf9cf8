"""How often tokens were used: one record on the ring for each token. It imports records and the desk."""
