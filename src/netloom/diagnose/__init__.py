"""Diagnosis without a terminal: what status, explain, trace and doctor find out, as values.

`snapshot` reads all objects through the API, `access` holds the connections to OVN's databases and to the nodes'
switches, `node/` inspects one node. On these build `status`, `changes` (the effects of a plan), `explain/`, `trace/`
and `doctor/`.

Nothing here prints, parses options or imports the command line: `netloom.cli.diagnosis` does, and a web page or an API
can use the same functions. Unreachable parts of the system are part of a result and raise no error.
"""
