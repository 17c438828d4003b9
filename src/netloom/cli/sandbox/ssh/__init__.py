"""What `netloom sandbox` does over SSH, on hosts without Netloom.

`hosts` connects to them, `progress` shows how far each is; `deploying` applies and destroys the documents of a
topology, `verifying` probes it, and `deploy_ovn` installs Open vSwitch and OVN. The protocol is in
`netloom.drivers.remote`.
"""
