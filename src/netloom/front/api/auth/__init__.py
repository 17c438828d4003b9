"""Authentication and authorization; a watch ends when its right does (`watch_rights`)."""
