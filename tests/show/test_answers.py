"""What commands answer, of planted results: documents that are JSON, and their lines."""

import json
import math
from collections import Counter

import numpy as np

from cellrepro.asked.segmentation_settings import Settings
from cellrepro.changes.sensitivity_result import Sensitivity, Variant
from cellrepro.show.answers.answer import Answer
from cellrepro.show.answers.sensitivity import sensitivity_answer


def test_what_json_lacks_becomes_null_and_arrays_become_lists():
    answer = Answer({"nan": math.nan, "most": [math.inf], "labels": np.array([1, 2])}, ["a", "b"])
    assert json.loads(answer.as_json()) == {"nan": None, "most": [None], "labels": [1, 2]}
    assert answer.as_text() == "a\nb\n"


def test_what_became_of_the_cells_is_counted_twice_alike():
    """Under its own key and among the kinds; asdict of a Counter would count the counts."""
    variant = Variant(
        name="flow_threshold",
        value=0.1,
        changed=0.25,
        n_changed=1,
        n_cells=4,
        interval=(0.1, 0.5),
        interval_over="cells",
        kinds=Counter(kept=3, lost=1),
        n_objects=3,
        ppm=10.0,
        ap50=None,
        image="a",
    )
    sensitivity = Sensitivity(
        model="tiny",
        base=Settings(),
        variants=(variant,),
        examples={},
        n_images=1,
        n_objects=4,
        ap50=None,
        n_passes=1,
    )
    answer = sensitivity_answer(sensitivity, {})
    (setting,) = json.loads(answer.as_json())["settings"]
    assert setting["kinds"] == {"kept": 3, "lost": 1}
    assert (setting["kept"], setting["lost"]) == (3, 1)
    (line,) = answer.lines[1:]
    assert line == "  1 of 4 (25 %; 10 % to 50 %)  flow_threshold 0.1: 3 kept, 1 lost"
