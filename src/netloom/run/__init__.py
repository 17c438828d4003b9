"""The mains: serve, apiserver, controller; their configuration, credentials, logs and metrics."""
