"""The sketches: one folder or file a kind, each with a spec, a sensitive sketch and a private one."""
