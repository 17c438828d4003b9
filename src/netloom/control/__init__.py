"""Controllers: resources change, keys are queued, and reconcilers make the world match and write what they observed.

runtime/  informers, caches, queues, controllers, leader election, Events, garbage collection; it knows no controller
ipam/     addresses, MACs and locks of attachments
ovn/      resources to OVN's northbound database, and statuses from both databases
node/     what an agent does on its node

Small controllers are modules of their own here: Networks' VNIs, Subnets, Namespaces, Nodes. What is to be done is
planned in `plan/`, and done by `drivers/`; processes are put together in `run/`.
"""
