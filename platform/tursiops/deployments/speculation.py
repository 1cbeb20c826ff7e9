"""Speculation of a revision: whether its option names what the engine has, and which draft it takes.

`options.speculation` is "auto", "off", or names of proposers joined by "+". A draft version that the option makes no
use of stays in the revision, and is neither sent to the engine nor counted.
"""

from __future__ import annotations

from engines.api import Capabilities
from tursiops.core import registry
from tursiops.core.errors import NotFound
from tursiops.deployments.models import Revision
from tursiops.deployments.refusals import refuse
from tursiops.registry import drafts
from tursiops.registry.models import Version

AUTO, OFF = "auto", "off"


def mode_of(revision: Revision) -> str:
    """What its options, or else their defaults, say; "off" for an engine that has no such option, or is gone."""
    if asked := revision.options.get("speculation"):
        return str(asked)
    try:
        properties = registry.engine(revision.engine).options_schema().get("properties", {})
    except NotFound:
        return OFF
    return str(properties.get("speculation", {}).get("default") or OFF)


def names_of(mode: str) -> list[str]:
    return [] if mode in (AUTO, OFF) else mode.split("+")


def draft_used(revision: Revision) -> Version | None:
    """The draft that the engine is to load."""
    draft = revision.draft_version
    if draft is None:
        return None
    mode = mode_of(revision)
    if mode == AUTO:
        return draft if drafts.proposer_of(draft) == drafts.MODEL else None
    return draft if drafts.proposer_of(draft) in names_of(mode) else None


def check_speculation(revision: Revision, capabilities: Capabilities) -> None:
    """Raises TursiopsError naming the field."""
    mode, draft = revision.options.get("speculation", AUTO), revision.draft_version
    names = names_of(mode)
    known = ", ".join([AUTO, OFF, *capabilities.proposers])
    for name in names:
        if name not in capabilities.proposers:
            raise refuse(
                "options", f"speculation names {name!r}, which engine {revision.engine} has not.", f"It has {known}."
            )
    if len(set(names)) != len(names):
        raise refuse("options", f"speculation is {mode!r}: a proposer is named twice.", "Name each once.")
    drafting = [name for name in names if name in capabilities.drafting]
    if len(drafting) > 1:
        text = f"speculation names {' and '.join(drafting)}, and there is one draft version."
        raise refuse("options", text, "Name one of them.")
    if drafting and draft is None:
        raise refuse(
            "draft_version",
            f"speculation names {drafting[0]!r}, and no draft version is given.",
            f"Give one, or leave {drafting[0]!r} out.",
        )
    if draft is not None:
        _check_draft(revision, draft, mode, drafting, capabilities)


def _check_draft(
    revision: Revision, draft: Version, mode: str, drafting: list[str], capabilities: Capabilities
) -> None:
    if not capabilities.drafting:
        raise refuse("draft_version", f"Engine {revision.engine} takes no draft.", "Leave it out.")
    found = drafts.misfit(draft, revision.version)
    if found is not None:
        raise refuse("draft_version", found.message, found.hint)
    if draft.format not in capabilities.formats:
        raise refuse("draft_version", f"Engine {revision.engine} does not serve format {draft.format!r}.")
    proposer = drafts.proposer_of(draft)
    if drafting and drafting != [proposer]:
        text = f"{draft} is for {proposer!r}, and speculation names {drafting[0]!r}."
        raise refuse("draft_version", text, f"Name {proposer!r} there, or choose another draft.")
    if mode == AUTO and proposer != drafts.MODEL:
        text = f"{draft} is for {proposer!r}, which auto does not use by itself."
        raise refuse("draft_version", text, f"Set options.speculation to 'lookahead+{proposer}'.")
