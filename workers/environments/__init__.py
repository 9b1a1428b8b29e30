"""Where commands run: recorded outputs, containers, a sandbox."""
