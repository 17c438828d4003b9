"""OVSDB: notation, schemas, monitors, transactions and sessions.

rows/    typed rows, generated from the schemas of Open vSwitch and OVN
memory/  an in-memory server, for tests and simulations

Only io.py does IO, and memory/serving.py for that server.
"""
