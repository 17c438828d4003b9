"""How much is asked of a control plane, and how long it takes: attachments come and go, agents are told."""
