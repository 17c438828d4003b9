"""The Kubernetes API conventions over a store: `app.Api` answers, `server.Server` listens."""
