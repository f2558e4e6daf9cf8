"""Wire types of recovery: names, the register's value, messages, events, effects and observations. Imports the kernel only."""
