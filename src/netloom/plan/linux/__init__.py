"""The backend `linux`: one document for each host of a Sandbox, which `drivers/linux/applier.py` applies.  Pure."""
