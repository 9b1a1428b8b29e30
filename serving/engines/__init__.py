"""Engines: one file per way of getting tokens, each behind `serving.interfaces.Replica` (the oracle: a trace)."""
