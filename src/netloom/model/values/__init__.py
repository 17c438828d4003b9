"""Values in the fields of objects: how each is parsed, checked and compared."""
