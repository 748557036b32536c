"""What is measured in a process of the product: `python -m benchmarks.inside WHAT …` with a site's settings."""
