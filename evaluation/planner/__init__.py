"""How much hardware a business needs, before it is bought: memory, latency and throughput as intervals with sources."""
