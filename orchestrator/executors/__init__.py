"""Executors: the only folder that imports Ray. `virtual` and `ray_actors`, one file each, share `ray_cluster`."""
