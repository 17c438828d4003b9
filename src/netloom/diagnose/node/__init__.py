"""One node as seen from outside its agent: switch, devices and mirrors (`inspection`), vxlan flows (`fabric`)."""
