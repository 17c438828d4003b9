"""What became of one object: conditions, rows in OVN, the port on its node (`explanation`), and when (`timeline`)."""
