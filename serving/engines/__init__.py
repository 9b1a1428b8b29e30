"""Engines: one file per way of getting tokens, each behind `serving.interfaces.Replica` (or a comparison's interface)."""
