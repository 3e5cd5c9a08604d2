"""What mode ``portable`` promises of two runs: which must have the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellrepro.spec.spec import Spec

_CHANGES_NO_BIT = ("profile", "profile_settings", "ranks")
"""Fields of a spec that change no bit in mode ``portable``; the batch size of a segmentation is one
more."""


def promised_alike(a: Spec, b: Spec) -> bool:
    """Whether mode ``portable`` promises the same bits of what two specs give.

    False unless both are of mode ``portable`` and ask for the same, but for what changes no bit in
    it.
    """
    return a.mode == b.mode == "portable" and _deciding(a) == _deciding(b)


def _deciding(spec: Spec) -> dict[str, object]:
    """The fields of a spec that decide bits in mode ``portable``, each setting by its name."""
    fields: dict[str, object] = spec.model_dump(mode="json", exclude={*_CHANGES_NO_BIT, "settings"})
    if spec.task == "segment":
        settings = spec.settings.by_name()
        settings.pop("batch_size", None)
        fields["settings"] = settings
        fields.pop("batch_size", None)
    return fields
