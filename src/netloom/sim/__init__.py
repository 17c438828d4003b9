"""Many hosts in one process: a seeded loop in virtual time, and a world in which things go wrong."""
