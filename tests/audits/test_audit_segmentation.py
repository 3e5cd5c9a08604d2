"""The audit of a segmentation through the command line."""

from conftest import options


def test_audits_operations_and_batches(small_store, invoke):
    asked = options(task="segment", model=small_store.weights, steps=1, replays=1, suspects=1)
    asked += ["--set", "niter=10"]  # every step of the dynamics is replayed
    answer = invoke("audit", small_store.data, *asked, "--json")
    assert answer.code == int(bool(answer.json["ops"]) or answer.json["depends_on_batch"])
    found = answer.json
    assert found["kinds"]["aten.addmm.default"] > 0
    assert "aten.grid_sampler_2d.default" in found["kinds"], "the dynamics are audited, too"
    assert (found["batch"]["n_items"], found["n_steps"]) == (4, 1)
    assert found["batch"]["n_compared"] > 50
    assert [one["batch_size"] for one in found["batches"]] == [1, 3, 8, 16]
    assert found["batches"][0]["n_differing"] == 0
    refused = invoke("audit", small_store.data, *options(task="other"))
    assert (refused.code, refused.out) == (2, "")
