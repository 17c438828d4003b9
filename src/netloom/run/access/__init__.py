"""The identities that `netloom serve` makes and admits: certificates, and the data directory with its clients."""
