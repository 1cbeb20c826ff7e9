"""Who sends it: an HTTP/SSE client of its own in several processes, one schedule, and a verdict about itself."""
