"""Many hosts on one machine: namespaces with real Open vSwitch and OVN."""
