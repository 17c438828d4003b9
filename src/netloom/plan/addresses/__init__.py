"""Addresses: blocks as numbers, which are reserved, and what an attachment is to be allocated."""
