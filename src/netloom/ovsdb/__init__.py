"""OVSDB: notation, schemas, monitors, transactions, sessions, and an in-memory server.

Only io.py does IO, and serving.py for that server.
"""
