"""Frontends, independent of each other: each turns the requests of one kind of client into resources."""
