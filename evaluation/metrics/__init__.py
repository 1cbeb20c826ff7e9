"""What is measured, by written definitions, and how sure a figure or a difference is."""
