"""The child that brings a model's files into the store. Standard library only: no Django, nothing heavy.

`python -m tursiops.registry.importer` speaks engines.protocol. Its spec:

    {"source": "demo" | "path" | "hub", "ref", "revision", "store": <root of the file store>, "key": <of this import>,
     "endpoint", "token", "roots": [folders that a path may lie in; empty: any], "cache": <folder of demo packages>}

Its report: {"files": [{"name", "sha256", "size"}], "format": "gguf" | "safetensors", "revision", "license"}; the files
are in the store then.
"""
