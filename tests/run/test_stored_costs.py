"""What many segmentations will take is said before they begin, by a stored one of their kind."""

from types import SimpleNamespace

from cellrepro.run.stored_costs import segmenting_announced
from stores import some_spec


def repeat_with(spec, **seconds):
    manifest = SimpleNamespace(
        seconds=seconds, masks={"a": None, "b": None}, model=SimpleNamespace(architecture="tiny")
    )
    return SimpleNamespace(spec=spec, manifest=manifest, name="KEY/0")


def test_a_stored_segmentation_tells_how_long():
    spec = some_spec()
    model = SimpleNamespace(architecture="tiny")
    plan = SimpleNamespace(spec=spec, n_images=3, request=SimpleNamespace(model=model))
    repeat = repeat_with(spec, segment=4.0)
    store = SimpleNamespace(runs=lambda: [SimpleNamespace(repeats=[repeat])])
    said = segmenting_announced(plan, store, n_each=10, ways="in ten ways")
    assert "3 images, each segmented 10 times (in ten ways): 30 segmentations" in said
    assert "about 1:00 min, as one took 2.0 s in KEY/0" in said
    nothing = SimpleNamespace(runs=lambda: [])
    assert "the progress says" in segmenting_announced(plan, nothing, n_each=10, ways="in ten ways")
