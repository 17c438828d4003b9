"""The hands: each driver sees what is there, and puts there what is wanted."""
