"""Structural schemas: `schema` derives them from types, `rules` and `checks` add what types cannot say."""
