"""How to speak OVSDB: notation, schemas, monitors, transactions and sessions; sockets in io.py alone."""
