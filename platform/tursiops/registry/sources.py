"""Where models come from. Each source is a child process; what is here says which, and checks what people enter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from engines.protocol import ChildError
from tursiops.accounts.models import User
from tursiops.core import store
from tursiops.core.errors import TursiopsError
from tursiops.core.registry import model_sources
from tursiops.registry.importer import demo, hub, path
from tursiops.settings import env

DEMO_CACHE = Path("~/.cache/tursiops/weights")  # shared with the bootstrap, which fetches it beside its other work


@dataclass(frozen=True)
class BuiltInSource:
    """A plugins.api.ModelSource that the importer serves, with a check before the job is queued."""

    name: str
    label: str
    ref_help: str
    check: Callable[[str, User | None], None]  # raises TursiopsError or ChildError
    suggest_name: Callable[[str], str]
    default_ref: str = ""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tursiops.registry.importer"]


def _check_demo(ref: str, user: User | None) -> None:
    if ref != demo.PACKAGE:
        raise TursiopsError(f"There is no demo model {ref!r}.", fields={"ref": [f"Leave it out, or {demo.PACKAGE}."]})


def _check_path(ref: str, user: User | None) -> None:
    if not settings.MODEL_PATHS and user is not None and not user.is_superuser:
        raise TursiopsError(
            "Registering from any path is for admins of the installation.",
            code="path_not_allowed",
            hint="Ask an admin to set TURSIOPS_MODEL_PATHS to the folders that models may be registered from.",
            fields={"ref": ["No folder is open for this."]},
        )
    path.check(ref, settings.MODEL_PATHS)


def _check_hub(ref: str, user: User | None) -> None:
    hub.parse_ref(ref)


BUILT_IN = [
    BuiltInSource(
        "demo", "Demo model", "nothing: SmolLM2-135M-Instruct", _check_demo, lambda ref: demo.NAME, demo.PACKAGE
    ),
    BuiltInSource(
        "path",
        "Path on the server",
        "absolute path of a .gguf file, or of a folder with safetensors and config.json",
        _check_path,
        lambda ref: Path(ref).name.removesuffix(".gguf"),
    ),
    BuiltInSource(
        "hub",
        "Hugging Face hub",
        "owner/name, or owner/name:file.gguf",
        _check_hub,
        lambda ref: (hub.parse_ref(ref)[1] or hub.parse_ref(ref)[0]).rpartition("/")[2].removesuffix(".gguf"),
    ),
]


def register() -> None:
    for source in BUILT_IN:
        model_sources.register(source.name, source, origin="tursiops.registry")


def checked_ref(source: str, ref: str, user: User | None) -> tuple[str, str]:
    """The ref to use and a name for the model that it suggests. Raises TursiopsError naming the field."""
    found: Any = model_sources.get(source)
    if not isinstance(found, BuiltInSource):  # a plugin's: its child judges the ref
        return ref, ref.rpartition("/")[2]
    ref = ref or found.default_ref
    if not ref:
        raise TursiopsError("ref: this source needs one.", fields={"ref": [f"Give {found.ref_help}."]})
    try:
        found.check(ref, user)
    except ChildError as error:
        raise TursiopsError(
            f"ref: {error.message}.", hint=error.hint, code=error.code, fields={"ref": [error.message]}
        ) from error
    return ref, found.suggest_name(ref)


def child_spec(spec: dict[str, Any], key: str) -> dict[str, Any]:
    """What the source's child gets on stdin. Secrets go this way only."""
    local = store.local()
    return {
        "source": spec["source"],
        "ref": spec["ref"],
        "revision": spec.get("revision", ""),
        "store": str(local.root),
        "key": key,
        "staging": str(local.incoming(key)),
        "endpoint": settings.HF_ENDPOINT,
        "token": env.read("HF_TOKEN"),
        "roots": settings.MODEL_PATHS,
        "cache": str(DEMO_CACHE.expanduser()),
    }
