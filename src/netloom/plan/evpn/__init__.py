"""EVPN: `exports` has the routes of our machines, `imports` the RemoteVTEPs of what other sites announce.  Pure."""
