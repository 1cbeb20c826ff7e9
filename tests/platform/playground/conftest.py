from tests.gateway_bench import bench, config, engines, redis

__all__ = ["bench", "config", "engines", "redis"]
