"""A name that a function does not take is refused at its door, before anything is read."""

from types import SimpleNamespace

import pytest

import cellrepro
from cellrepro.errors import BadInput

NOWHERE = "no/such/folder"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: cellrepro.train(NOWHERE, epoch=3), r"no option epoch; do you mean epochs\?"),
        (lambda: cellrepro.train(NOWHERE, repeat=3), r"do you mean repeats\?"),
        (lambda: cellrepro.train(NOWHERE, settings={}), "one of segment: a training segments with"),
        (lambda: cellrepro.train(NOWHERE, program=["rm"]), "program, which is one of wrap"),
        (lambda: cellrepro.segment(NOWHERE, epochs=5), "epochs, which is one of train"),
        (lambda: cellrepro.sensitivity(NOWHERE, modle="tiny"), r"mean mode or model\?"),
        (lambda: cellrepro.tiles(NOWHERE, ranks=2), "tiles has no option ranks"),
        (lambda: cellrepro.wrap(NOWHERE, "x", seeds=1), r"do you mean seed\?"),
        (lambda: cellrepro.wrap_python("m:f", NOWHERE, model="tiny"), "model, which is one of tr"),
        (lambda: cellrepro.audit_training(NOWHERE, epochs=2), "audit_training has no option epo"),
        (lambda: cellrepro.audit_segmentation(NOWHERE, step=2), r"do you mean steps\?"),
        (lambda: cellrepro.audit_function("m:f", NOWHERE, sede=2), r"do you mean seed\?"),
        (lambda: cellrepro.which_seed_changes(NOWHERE, mode="fast"), "mode, which is one of train"),
        (
            lambda: cellrepro.with_effects(SimpleNamespace(), NOWHERE, repeats=2, epoch=2),
            r"do you mean epochs\?",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_near_one(call, expected):
    with pytest.raises(BadInput, match=expected):
        call()
