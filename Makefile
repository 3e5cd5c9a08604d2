# Every target works on a fresh clone with Python 3.11 or newer and a C compiler.
PYTHON ?= python3
DATA ?= data/synthetic
STORE ?= outputs
MODEL ?= tiny
BIN := .venv/bin
# Containers often set it; then every process of the tests compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup data demo test test-all test-samebits test-faults fuzz lab explore bench findings pictures site docs lint lock notebooks clean

help:
	@echo "make demo [DATA=folder]  train over the demo grid, then $(STORE)/report/index.html;"
	@echo "          [MODEL=name]   from a Cellpose name, a weights file or KEY/0 of a run"
	@echo "make lab [IP=0.0.0.0]    JupyterLab on the notebooks; IP in a container"
	@echo "make explore [STORE=dir] the explorer alone, in the browser, on the runs of a store"
	@echo "make test                the tests that CI runs: pytest and the notebooks"
	@echo "make test-all            the long ones, too, and the notebooks as they are committed"
	@echo "make test-samebits       those of samebits, where no laboratory can be imported"
	@echo "make test-faults         applies known faults to a copy: the tests must notice each"
	@echo "make fuzz [SECONDS=n]    made-up input for every parser, an hour in all; what fails is kept"
	@echo "make bench [ALL=1]       the benchmarks, ratios side by side; ALL=1: what takes long, too"
	@echo "make findings            the studies over evidence/, and docs/findings.md from them"
	@echo "make pictures            the pictures of README and docs anew, from the demo's runs"
	@echo "make site                the pages of docs/ as a site with search: site/index.html"
	@echo "make lint                ruff, format check, mypy"
	@echo "make lock                resolve requirements.lock anew"

setup: .venv/.ready

.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) scripts/set_up.py

data: setup
	@$(BIN)/cellrepro data synthetic > /dev/null

demo: setup data
	$(BIN)/cellrepro demo "$(DATA)" --model "$(MODEL)" --store "$(STORE)"

# One file after the other on each of two cores, the notebooks first, since they take longest.
# Waiting threads sleep soon, as in every profile: else two trainings at once take eight times as long.
PYTEST := GOMP_SPINCOUNT=1000 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: setup data
	$(PYTEST) -m "not slow"

test-all: setup data
	CELLREPRO_NOTEBOOKS=as-committed $(PYTEST)

test-samebits: setup
	$(BIN)/python scripts/samebits_alone.py

test-faults: setup data
	$(BIN)/python tests/faults/apply.py

SECONDS ?= 3600
fuzz: setup
	$(BIN)/python scripts/fuzz.py --seconds $(SECONDS)

# Both listen on this computer alone, and ask for a token. In a container, whose user is root and has
# no screen, that would be the container: there IP=0.0.0.0, and Docker says who may reach the port.
IP ?= 127.0.0.1
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root --no-browser)
lab: setup data
	$(BIN)/jupyter lab --ServerApp.ip=$(IP) $(AS_ROOT) --notebook-dir=. notebooks/00_setup.ipynb

explore: setup data
	$(BIN)/python scripts/explore.py "$(STORE)"

bench: setup data
	$(BIN)/python scripts/bench.py $(if $(ALL),--all) --json outputs/bench.json

findings: setup
	$(BIN)/python scripts/findings.py

pictures: setup data
	$(BIN)/python scripts/pictures.py --data "$(DATA)" --store "$(STORE)"
	$(BIN)/python scripts/page_pictures.py

# The commands of the pages run, their output written into them; LONG=1: those with PyTorch, too.
site: setup
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/page_outputs.py $(if $(LONG),--long)
	$(BIN)/python scripts/website.py

docs: site

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Versions and digests, no addresses, for Linux, macOS and Windows: all that development needs, and
# from the same versions what `cellrepro setup` installs, for Python 3.10, too.
LAB_LOCK := src/cellrepro/process/lab.lock
lock: setup
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra cluster --extra docs --universal --python-version 3.11 --generate-hashes --quiet --output-file requirements.lock
	cp requirements.lock $(LAB_LOCK)
	echo uv | $(BIN)/uv pip compile pyproject.toml - --extra cluster --universal --python-version 3.10 --generate-hashes --quiet --no-header --output-file $(LAB_LOCK)

# Execute the committed notebooks again, in place, on small data.
notebooks: setup data
	$(BIN)/python scripts/execute_notebooks.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build src/*.egg-info
