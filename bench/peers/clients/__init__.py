"""The loads that the peers' own clients make."""
