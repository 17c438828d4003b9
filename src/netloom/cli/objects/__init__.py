"""The commands on objects, with the options and output of kubectl: get, apply, delete, describe, wait, watch.

`manifests` reads files, `output` prints objects, `field_hints` explains refused fields. Requests are made
by `netloom.client`.
"""
