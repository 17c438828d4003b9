"""One node's share of the plan: its ports, the programs at them, and what namespaces are granted there."""
