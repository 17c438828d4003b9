"""OpenFlow 1.4 for Open vSwitch: flows as values, messages, bundles, and an in-memory switch that executes.

Only io.py does IO.
"""
