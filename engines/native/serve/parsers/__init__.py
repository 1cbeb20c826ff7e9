"""What a model's answer says: reasoning, content, tool calls. Start at pieces.py; reader.py puts the parts together."""
