"""Who answers what: commands of users, messages of other nodes. Each table names the part that does the work."""
