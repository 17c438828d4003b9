"""OVN's northbound database: `driver` owns the connection, `pipeline` sends; the other modules are pure.

desired rows (plan/ovn) ──► diff ──► bundles ──► write ──► driver ──► one transaction after another (pipeline)
"""
