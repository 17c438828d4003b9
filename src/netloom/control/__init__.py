"""Controllers: resources change, keys are queued, and reconcilers make the network match and write what they observed.

    runtime/  informers, caches, queues, leader election, Events, garbage collection; it knows no controller
    ipam/     addresses, MACs and locks of attachments
    ovn/      from resources to OVN's northbound database, and statuses from both databases
    node/     what an agent does on its node

Small controllers are single modules: VNIs of Networks, Subnets, Namespaces, Nodes, kinds without an implementation.
`plan/` computes the desired state, `drivers/` apply it, `run/` wires processes.
"""
