"""Who decides the next reply: a recording, a script or a real model."""
