"""The committed schema is the code's own: the console's types are made from it."""

from pathlib import Path

import yaml
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.yaml"
HOW = "run `manage.py spectacular --file docs/openapi.yaml` and commit it, with the console's types"


def generated() -> str:
    with GENERATOR_STATS.silence():
        schema = SchemaGenerator().get_schema(request=None, public=True)
    return OpenApiYamlRenderer().render(schema, renderer_context={}).decode()


def test_committed_schema_has_not_drifted():
    assert yaml.safe_load(COMMITTED.read_text()) == yaml.safe_load(generated()), HOW


def test_every_operation_has_a_name_of_its_own():
    """Names that were made up from the path end in one of these; ours are said in the views."""
    paths = yaml.safe_load(generated())["paths"]
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(names) == len(set(names))
    assert [name for name in names if name.endswith(("_2", "_destroy", "_partial_update", "_retrieve_2"))] == []
