"""SecurityProfiles as port groups, address sets and ACLs; match expressions."""
