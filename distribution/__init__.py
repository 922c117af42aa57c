"""A release of the project: versions that agree, archives that build, a wheel that works alone, a bill of materials."""
