"""Structured output: what an answer may look like, as token masks.

    spec        what a request carries: the source of its grammar, and where it begins
    schema      which JSON Schemas are taken, by keyword; everything else is refused by name
    sources     schema, regex, choice, grammar → a source that the compiler reads
    tools       the grammar that forces a tool call, in a model's own format
    vocabulary  the tokens, as the compiler reads them
    compiler    sources → matchers, on a thread of its own, cached
    matcher     where one request stands in its grammar, and which tokens may come next

The compiler is llguidance (docs/structured-output.md says why); it is imported only where a grammar is compiled.
"""
