"""The Tursiops control plane. Importing it imports nothing else: the bootstrap runs before Django is there."""

__version__ = "0.1.0"
