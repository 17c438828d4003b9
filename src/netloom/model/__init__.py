"""The kinds of objects: types, validation, schemas and the registry.

kinds/    the types of the kinds
values/   the values in their fields: addresses, quantities, selectors, JSONPath
schemas/  the structural schema of a kind, derived from its types; from it come the validator, CRDs and OpenAPI

`registry.py` lists all kinds. `codec.py` is the only module that decodes JSON and YAML from outside. Nothing here does
IO or reads a clock. Stores are in `netloom.store`, the API in `netloom.front.api`.
"""
