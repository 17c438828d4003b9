"""The load driver: creates and deletes attachments by plan, simulates agents that receive them, and records times."""
