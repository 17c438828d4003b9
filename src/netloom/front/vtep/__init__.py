"""The REST API of ryu's rest_vtep and of evpn-for-ovn, over Netloom's objects, and the same operations as RPC.

    POST /vtep/networks {"vni": 10} ─► routes.py ─┐
    add_network(arg={"vni": 10})    ─► rabbit.py ─┴─► operations.py ─► Network, EVPNNetwork

A translation without a state of its own: an operation writes and reads objects, and the controllers and the speaker do
the rest. So these clients, kubectl and `netloom` see the same configuration, and no restart loses it. `arguments.py`
checks what clients send; `answers.py` forms what they get. `run/vtep.py` is the process.
"""
