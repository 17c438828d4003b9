"""Documents merged: patches, server-side apply, and the managedFields that say who owns which field."""
