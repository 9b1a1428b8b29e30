"""How a history becomes a prompt: one file per renderer, one YAML of the same name in `conf/renderer/`."""
