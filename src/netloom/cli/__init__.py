"""The `netloom` command: words and tables.

The modules here are the entry point (`main`), the options that commands share (`options`), the text layout (`tables`,
`terminal`, `failure`), and the commands that stand alone: processes, configuration, credentials, CRDs, the lab. The
commands on objects are in `objects/`, those that look for faults in `diagnosis/`, the load driver's in `bench/`.

Nothing is found out here: `netloom.client` talks to the API server, `netloom.diagnose` finds faults, `netloom.run`,
`netloom.lab` and `netloom.load` do the work. `main` imports a command's module only when that command is called, so
that `netloom --help` stays fast.
"""
