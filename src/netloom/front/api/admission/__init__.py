"""Rules that need more than the object: who writes, what else is stored."""
