"""What to run, where, and again: sweeps, cells, attempts and the driver."""
