"""Networks as logical switches: ports, DHCP, DNS, QoS, mirrors."""
