"""Where wishes rest: one interface (`store.base`), four implementations, one test suite."""
