"""Pure planning: what is wanted and what is seen in, what must be done out.  No IO, no clock."""
