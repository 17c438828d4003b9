"""The processes of a lab: which there are, how each is started in its namespace, and what restarts them."""
