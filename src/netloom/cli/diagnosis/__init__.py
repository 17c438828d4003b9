"""The commands plan, status, explain, trace and doctor: their options, their text and their exit status.

What they print is found by `netloom.diagnose`, which knows no terminal.
"""
