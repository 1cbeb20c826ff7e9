"""The committed schema is the code's own: the console's types are made from it."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.yaml"
HOW = "run `manage.py spectacular --file docs/openapi.yaml` and commit it, with the console's types"


LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is


@cache
def generated() -> Any:
    with GENERATOR_STATS.silence():
        schema = SchemaGenerator().get_schema(request=None, public=True)
    return yaml.load(OpenApiYamlRenderer().render(schema, renderer_context={}), LOADER)


def test_committed_schema_has_not_drifted():
    assert yaml.load(COMMITTED.read_text(), LOADER) == generated(), HOW


def test_every_operation_has_a_name_of_its_own():
    """Names that were made up from the path end in one of these; ours are said in the views."""
    paths = generated()["paths"]
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(names) == len(set(names))
    assert [name for name in names if name.endswith(("_2", "_destroy", "_partial_update", "_retrieve_2"))] == []
