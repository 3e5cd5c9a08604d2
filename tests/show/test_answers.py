"""What commands answer, of planted results: documents that are JSON, and their lines."""

import json
import math

import numpy as np

from cellrepro.show.answers.answer import Answer


def test_what_json_lacks_becomes_null_and_arrays_become_lists():
    answer = Answer({"nan": math.nan, "most": [math.inf], "labels": np.array([1, 2])}, ["a", "b"])
    assert json.loads(answer.as_json()) == {"nan": None, "most": [None], "labels": [1, 2]}
    assert answer.as_text() == "a\nb\n"
