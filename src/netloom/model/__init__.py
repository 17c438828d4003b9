"""What is wanted: the kinds as frozen values, their validation, the registry of kinds, one decoding door."""
