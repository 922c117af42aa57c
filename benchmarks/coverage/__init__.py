"""Coverage: how often the intervals that the library states hold, for every kind and every answer.

``python -m benchmarks.coverage`` makes releases of known data through the public interface, asks them, and counts. One
module a family of kinds lists its *cases*; a case makes one release a trial and returns all that it answers.
"""
