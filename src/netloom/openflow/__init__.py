"""How to speak OpenFlow 1.4 to Open vSwitch: flows as values, messages, bundles, and a switch in memory that executes.

No IO but in io.py.
"""
