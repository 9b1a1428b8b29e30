"""One agent session, end to end: history, renderers, policies, environments, benchmarks and the loop over them."""
