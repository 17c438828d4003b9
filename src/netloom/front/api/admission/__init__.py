"""Rules that need more than the object: the client that writes, other stored objects."""
