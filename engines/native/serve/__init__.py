"""The API process of one engine instance: HTTP, tokenizing, detokenizing, streaming. The model runs in the core."""
