"""The Kubernetes API conventions over a store: `app.Api` answers, `http.server.Server` listens.

http/       connections, requests and paths; limits and fair queuing
auth/       authentication and authorization: tokens, roles, reviews, delegation to a cluster
verbs/      get, list, watch, create, update, patch, delete; batches and shared watches
admission/  rules beyond an object's own validation
merge/      patches, server-side apply, managedFields
schemas/    discovery, OpenAPI, CustomResourceDefinitions
output/     JSON, Tables, Protobuf, watch frames, Status
"""
