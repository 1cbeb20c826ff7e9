"""What a run leaves for people and programs: JSON and its schema, JSONL, CSV, JUnit, HTML, and other tools' results."""
