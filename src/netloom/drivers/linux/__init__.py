"""The backend `linux` on a host: `applier`, one program that turns a host into what its document says."""
