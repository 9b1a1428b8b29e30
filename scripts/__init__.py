"""Developer and CI scripts, run as `python -m scripts.NAME`; not packaged."""
