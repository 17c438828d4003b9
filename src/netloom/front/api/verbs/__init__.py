"""The verbs on objects.  `operations` dispatches; batches and streams carry several requests over one connection."""
