"""Routers, one per file: where a call goes. Stateless, pure and local to the agent worker."""
