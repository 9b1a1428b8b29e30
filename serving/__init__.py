"""Calls, replicas, routing and time: everything between an agent's prompt and an engine's tokens."""
