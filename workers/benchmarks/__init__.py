"""Task lists: recorded runs, a seeded synthetic generator, and live benchmarks."""
