"""Cyber-range topologies as files: reading and checking them, converting older formats, and drawing them.

`reading.read` takes the bytes of a file of any supported format. `checks.check` judges a whole topology; the API uses
it as well. `instance` computes what the CyberRangeCZ platform makes of a topology, `views` and `exports` print it.
"""
