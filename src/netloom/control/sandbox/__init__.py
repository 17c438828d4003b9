"""Sandboxes: their objects, and their statuses."""
