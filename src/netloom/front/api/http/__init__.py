"""The wire: a TLS connection (`connection`), a request and its answer (`exchange`), the grammar of paths (`paths`)."""
