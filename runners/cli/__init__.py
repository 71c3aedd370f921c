"""The command line `vitinit`."""
