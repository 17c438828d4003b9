"""Netloom: one control plane for virtual networks on OVN and Open vSwitch."""

__version__ = "0.1.0"
