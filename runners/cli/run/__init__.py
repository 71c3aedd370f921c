"""`vitinit run`: its options, what is to be done, and doing it here or with a cluster."""
