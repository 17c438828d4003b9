"""The kinds of resources: types, validation, schemas and the registry.

`registry.py` lists all kinds; `attachments.py`, `networks.py`, `policy.py` and the like define their types. `schema.py`
derives a structural schema from the types, from which come the validator (`validation.py`), the CRDs (`crds.py`),
OpenAPI and server-side apply. `codec.py` is the only module that decodes JSON and YAML from outside. Nothing here does
IO or reads a clock. Stores are in `netloom.store`, the API in `netloom.front.api`.
"""
