"""The doors, unaware of each other: outside words become resources."""
