"""The seeded generator behind `benchmark=synthetic`: figures, draws, text, a virtual repository, sessions."""
