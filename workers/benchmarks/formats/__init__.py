"""One module per trajectory format; each has NAME, HINT, `matches(document)` and `read(documents, origin)`."""
