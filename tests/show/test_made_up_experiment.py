"""The made-up experiment of the notebook and the pages is what both say of it."""

import filecmp
from pathlib import Path

import cellrepro
from cellrepro.show import groups_at_a_glance
from cellrepro.show.made_up_experiment import made_up_experiment
from drawn import texts

FILES = Path(__file__).parents[2] / "docs" / "files" / "experiment"


def test_its_conclusion_changes_with_the_small_cells(tmp_path):
    experiment = made_up_experiment()
    answer = cellrepro.conclusion(
        experiment.masks, experiment.without_small(80), groups=experiment.groups
    )
    assert [one.word for one in answer.conclusions] == ["changes", "changes"]
    sides = (experiment.masks, experiment.without_small(80))
    shown = texts(groups_at_a_glance(answer, *sides, experiment.images, name_b="80"))
    assert "control: control_1\nA: 17 cells\n80: 15 cells\ndrug: drug_1\nA: 22 cells" in shown
    experiment.write(tmp_path / "new", min_sizes={"min_size_15": 15, "min_size_80": 80})
    names = [path.relative_to(FILES).as_posix() for path in FILES.rglob("*.*")]
    assert len(names) == 49
    same, *_ = filecmp.cmpfiles(tmp_path / "new", FILES, names, shallow=False)
    assert sorted(same) == sorted(names)
