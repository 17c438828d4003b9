"""A small client of the API: blocking, on the standard library, for the command line and for diagnosis.

`session` reads a kubeconfig; `http` sends requests and raises the errors that the server names; `resources` maps kinds
to URL paths; `lists` pages through collections and follows watches; `suggestions` adds the nearest name to a NotFound.

Controllers and agents do not use it: they work on a store (`netloom.store`), of which the Kubernetes API is one.
"""
