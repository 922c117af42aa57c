"""What exists to be compared with: PrivSketch as published, its rivals, and the measures of its tables."""
