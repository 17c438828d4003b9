"""Authentication and authorization; watches end when their right does (`watch_rights`)."""
