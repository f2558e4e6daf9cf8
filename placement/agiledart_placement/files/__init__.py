"""Documents of `agiledart place`: networks and topologies as requests, evaluated placements as results. No file is opened here."""
