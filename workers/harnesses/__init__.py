"""Prompt templates and the formats of actions and observations, one harness per file."""
