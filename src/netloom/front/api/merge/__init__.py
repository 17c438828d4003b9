"""Merging of documents: patches, server-side apply, and managedFields, which record the owner of each field."""
