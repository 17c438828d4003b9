"""`netloom bench`: its options (`flags`), its progress line (`progress`) and its commands (`command`).

The load itself is in `netloom.load`.
"""
