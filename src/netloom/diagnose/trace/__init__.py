"""The path of one packet, worked out without sending it.

`packet` builds the packet, `output` parses what ovn-trace and ofproto/trace print, `vxlan` runs the packet through the
flows of the vxlan fabric, `tracer` puts them together.
"""
