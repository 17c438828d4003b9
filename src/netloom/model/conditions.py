"""The types of the conditions that more than one component reads or writes."""

ADDRESSED = "Addressed"
"""An attachment has its addresses and its MAC.  Written by IPAM."""
PLUGGED = "Plugged"
"""An attachment's interface exists and is connected.  Written by the agent of its node."""
PROGRAMMED = "Programmed"
"""The network implements the object.  Written by the controllers."""
