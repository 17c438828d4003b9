"""Routers as logical routers: ports, gateways, NAT, policies; load balancers and their VIPs."""
