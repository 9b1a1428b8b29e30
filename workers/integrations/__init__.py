"""Our renderers in other people's agents: mini-swe-agent by configuration, any other loop by a function."""
