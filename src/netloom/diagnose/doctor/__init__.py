"""The checks of `netloom doctor`: one module for each part of the system that is compared with the resources.

Each section reports findings, and repairs what is safe to repair. `confirmation` drops findings that do not last.
"""
