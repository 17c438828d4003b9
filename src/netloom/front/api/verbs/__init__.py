"""The verbs on objects: `operations` on one; lists, watches; batches and streams of requests over one connection."""
