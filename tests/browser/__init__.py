"""A package, so that package-scoped fixtures end with it: one platform and one Chromium serve all browser tests."""
