"""Who is shut out of the network: bans are taken from admins, spread to all, put into force. It imports records and the desk."""
