# What a person types. Every target sets up what it needs; nothing has to be done by hand before.
SHELL := /bin/bash -o pipefail
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Where it is set, every process of the tests would compile all of them again, which takes half of its start.
unexport PYTHONDONTWRITEBYTECODE
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/echelon
DATA ?= $(CACHE)/fashion-mnist
TYPES := $(CACHE)/mypy.tar

.DEFAULT_GOAL := help
.PHONY: help demo demo-k8s data test test-all quick check bench soak schema clean cluster cluster-down cluster-test

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The environment: uv hard-links from its cache, so a second checkout is ready in seconds.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "echelon needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	@echo "setting up $(VENV): torch and TensorFlow among it, several GB the first time"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --compile-bytecode \
		--editable . --group frameworks --group check --group test --group browser
	@touch $@

demo: $(READY) $(DATA)/.complete ## train the example on two workers of this machine
	@$(BIN)/echelon run -n 2 examples/fashion_mnist/train.py --data_path $(DATA) --checkpoint_path '{output}/ckpt' \
		--log_path '{output}/tb' --epochs 1

# A worker asks for 600m of every core that a node has, so that two of them do not fit on one node.
demo-k8s: export ECHELON_ON := k8s
demo-k8s: $(READY) $(DATA)/.complete ## the same on two nodes of a real Kubernetes, which it starts (Linux, root, Go)
	@$(BIN)/python -m testbed up >/dev/null && $(BIN)/python -m testbed image load torch >/dev/null
	@export KUBECONFIG="$$($(BIN)/python -m testbed kubeconfig)" && \
	{ $(BIN)/echelon volume ls -o json | grep -q '"fashion-mnist"' || \
		$(BIN)/echelon volume create fashion-mnist --size 1Gi --mode rwx --class shared; } && \
	$(BIN)/echelon cp --image docker.io/testbed/python:1 $(DATA)/. pvc:fashion-mnist && \
	$(BIN)/echelon run -n 2 --cpus $$(( $$(nproc) * 600 ))m --image docker.io/testbed/torch:1 \
		--mount pvc:fashion-mnist:/data:ro examples/fashion_mnist/train.py --data_path /data \
		--checkpoint_path '{output}/ckpt' --log_path '{output}/tb' --epochs 1 && \
	echo "the cluster stays; make cluster-down ends it"

data: $(DATA)/.complete

$(DATA)/.complete: | $(READY)
	@$(BIN)/python examples/fashion_mnist/fetch_data.py $(DATA)
	@touch $@

# A new checkout begins with what mypy found in another one, and looks at the difference only. From then on each has
# its own: mypy's cache is a database, for which two checkouts would wait in turn.
.mypy_cache:
	@tar -xf $(TYPES) 2>/dev/null || { rm -rf $@ && mkdir $@; }

check: $(READY) .mypy_cache ## formatting, lint, types, layers, the agent's Python
	@bash -c 'set -e; \
	$(BIN)/ruff format --check --quiet . || { echo "run: ruff format"; exit 1; }; \
	$(BIN)/ruff check --quiet .; \
	$(BIN)/mypy --no-error-summary; \
	test -e .mypy_cache/kept || { mkdir -p $(CACHE) && tar -cf $(TYPES).$$$$ .mypy_cache && mv $(TYPES).$$$$ $(TYPES) && \
		touch .mypy_cache/kept; } || true; \
	$(BIN)/lint-imports --no-cache >$(VENV)/layers.log || { cat $(VENV)/layers.log; exit 1; }; \
	$(BIN)/vermin --no-tips --violations -t=3.8- src/echelon/agent src/echelon/codecs/writing.py src/echelon/codecs/parsing.py src/echelon/notebook/beside >$(VENV)/vermin.log || { cat $(VENV)/vermin.log; exit 1; }'
	@echo "checks passed: format, lint, types, layers, agent on Python 3.8"

test: $(READY) ## the checks and the tests that decide whether a change lands, in about eight minutes
	@$(BIN)/python -m tests.parts

test-all: $(READY) ## every check and test, to the end whatever fails, with a table
	@ECHELON_TEST_DATA=$(DATA) $(BIN)/python -m tests.parts all

quick: $(READY) ## the fast tests only
	@$(BIN)/python -m pytest -m "not soak and not slow and not cluster" -q -x

soak: $(READY) $(DATA)/.complete ## the fault tests with their full counts
	@ECHELON_TEST_DATA=$(DATA) ECHELON_TEST_PROPERTIES=full $(BIN)/python -m pytest -m soak --durations=0

cluster: $(READY) ## a real Kubernetes on this machine (Linux, root, Go); prints the line that exports KUBECONFIG
	@$(BIN)/python -m testbed up

cluster-down: $(READY) ## end it, and all it made
	@$(BIN)/python -m testbed down

cluster-test: $(READY) $(DATA)/.complete ## the tests that need it; starts it and ends it
	@ECHELON_TEST_DATA=$(DATA) $(BIN)/python -m tests.parts cluster

bench: $(READY) ## figures, as ratios against peers measured in the same run
	@for file in bench/*.py; do $(BIN)/python $$file || exit 1; done

schema: $(READY) ## write the job file's JSON Schema again
	@$(BIN)/python -m echelon.jobfile.json_schema > src/echelon/job.schema.json

clean: ## forget the environment
	@rm -rf $(VENV)
