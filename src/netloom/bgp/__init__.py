"""BGP-4 with EVPN: messages, the state machine of a session, RIBs.  Sans-IO: only io.py has sockets and a clock.

    errors          NOTIFICATION as an exception; the reactions of RFC 7606
    messages        framing, OPEN with capabilities, KEEPALIVE, NOTIFICATION, ROUTE-REFRESH
    communities     extended communities, route distinguishers and route targets, by their text
    nlri            address families; splitting a field of NLRI into routes with keys; EVPN route types 1 to 5
    attributes      path attributes, each with its reaction to a malformed one
    update          UPDATE: attributes and routes of all families; packing routes into messages
    fsm, peer       the state machine of one connection; a configured peer, which may have two
    rib, evi        Adj-RIB-In, best paths, Adj-RIB-Out; EVPN instances, which import routes
    speaker, io     all of it together, without and with sockets
    mrt             dumps of RIBs and messages in the MRT format

Nothing here imports the rest of the project: the package could be published on its own.
"""
