"""The page of `agiledart web`: a local HTTP server, a watcher that asks one agent, and the files of the page."""
