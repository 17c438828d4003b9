"""OVN: `northbound_sync` feeds the planner and writes what it plans; `status` reports what became of it.

`plan_only` does the same where there is no OVN, and reports what could not be planned. `southbound` observes chassis,
gateways and service monitors.
"""
