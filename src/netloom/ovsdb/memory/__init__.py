"""An in-memory OVSDB server that executes transactions as ovsdb-server does, for tests and simulations."""
