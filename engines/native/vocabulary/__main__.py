from __future__ import annotations

import sys

import msgspec

from engines.native.vocabulary.job import Spec, run
from engines.protocol import Channel, ChildError, read_spec


def main() -> int:
    channel = Channel()
    try:
        given = read_spec()
        given.pop("v", None)
        try:
            spec = msgspec.convert(given, Spec, strict=True)
        except msgspec.ValidationError as error:
            raise ChildError("bad_spec", f"the spec is no spec of this job: {error}") from error
        channel.report(run(spec, channel))
    except ChildError as error:
        channel.error(error.code, error.message, error.hint)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
