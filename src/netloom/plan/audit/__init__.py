"""Audits: they take state and return findings, which `netloom doctor` prints."""
