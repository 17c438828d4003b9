"""The API's description of itself: discovery, OpenAPI v2 and v3, CustomResourceDefinitions."""
