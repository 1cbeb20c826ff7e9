"""Pages that open from a file with no network and no script: English and Chinese, light and dark by style alone."""
