"""The checks of `netloom doctor`: one module for each part of the system that is compared with the resources.

Each section (`report.Section`) reports inconsistencies, and repairs what is safe to repair. `confirmation` drops
findings that do not last.
"""
