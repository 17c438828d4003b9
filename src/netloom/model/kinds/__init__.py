"""The types of the kinds, as frozen values: specs and statuses.  `registry.py` has their names and columns."""
