"""Objects in the form a client accepts: JSON, Table, metadata, Protobuf; watch events; errors as Status."""
