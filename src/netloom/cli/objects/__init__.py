"""The commands on objects, with the options and output of kubectl: get, apply, delete, describe, wait, watch.

`selection` finds the objects that arguments name, `manifests` reads files, `output` prints objects.
"""
