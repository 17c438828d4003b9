"""EVPN: `host` runs the speakers of a node, `networks` is the controller of EVPNNetworks.

host.py       the BGPSpeakers of this node: which run
speaker.py    one of them: peers, networks, statuses
stretched.py  one EVPNNetwork of it: our machines to routes, routes to RemoteVTEPs
live.py       the control socket
answers.py    what it answers: what the speaker knows now
networks.py   in the controller: which EVPNNetworks are accepted, and whose speaker forwards
"""
