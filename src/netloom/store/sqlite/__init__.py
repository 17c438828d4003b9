"""A store in one file: `store` commits writes, `log` is the file, `reserve` the space for a full disk."""
