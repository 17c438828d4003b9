"""How to speak OVSDB: notation, schemas, monitors, transactions, sessions, and a server in memory.

No IO but in io.py, and in serving.py for that server.
"""
