"""Task files of lm-eval over ../shared/data: no hub is asked. Read by lm-eval's own environment."""
