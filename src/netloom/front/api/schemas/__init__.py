"""What the server says of itself: discovery, OpenAPI v2 and v3, CustomResourceDefinitions."""
