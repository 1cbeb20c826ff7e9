"""Reads. Nodes belong to the installation; of the instances on them a team sees its own."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tursiops.deployments.models import Instance
from tursiops.fleet.models import Node
from tursiops.fleet.rows import node_row


def node_rows(nodes: list[Node], *, user: Any, team: Any) -> list[dict[str, Any]]:
    """Contract §6, `Node`, for a reader."""
    of_node: dict[Any, list[Instance]] = defaultdict(list)
    rows = Instance.objects.restrict(user, team=team).filter(node__in=nodes).select_related("deployment")
    for row in rows:
        of_node[row.node_id].append(row)
    return [node_row(node, instances=of_node[node.pk]) for node in nodes]
