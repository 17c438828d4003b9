"""Typed rows of the databases, one module each, written by tools/ovsdb-rows from their schemas."""
