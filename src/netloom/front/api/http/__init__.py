"""The wire: one TLS connection (`connection`), one request and its answer (`exchange`), what a path asks (`paths`)."""
