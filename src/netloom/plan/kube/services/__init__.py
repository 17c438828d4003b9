"""The LoadBalancers of a cluster's Services, and their addresses outside, from `pools`.  Pure."""
