"""Audits: all state in, what is inconsistent out.  `netloom doctor` prints it."""
