"""Plans of networks: `plan_feed` feeds the planner and hands what it plans to a sink; `status` writes statuses.

The sinks are `northbound_sync`, which writes to OVN, and `plan_only` for clusters without OVN. `southbound` observes
chassis, gateways and service monitors; `details` has the fields of statuses that depend on the kind.
"""
