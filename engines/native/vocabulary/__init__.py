"""Domain tokens: a model's vocabulary grown by terms of the user's trade, so that their texts take fewer tokens.

`python -m engines.native.vocabulary` is the child of the platform's job; docs/domain-tokens.md says what it does and
why. In the order of execution: `mine` (candidates from a corpus), `forms` (what is added for a term), `saving` (tokens
before and after), `tables` (embedding and head), `hf_export` (a GGUF file as config.json and tensors), `folder` (the
files of the new version).
"""
