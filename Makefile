# The commands: make demo, make demo-serve, make test, make test-all, make lint, make fix, make docs, make experiments, make tables, make dist, make images. Each sets up .venv from uv.lock by itself.
PYTHON ?= python3
UV_VERSION := 0.13.8
BIN := .venv/bin
# slow tests wait a fifth of their time, mostly for processes that they start: one more worker than cores works meanwhile
PARALLEL := -n 3 --dist worksteal
export UV_PROJECT_ENVIRONMENT := .venv
export UV_COMPILE_BYTECODE := 1

.PHONY: demo demo-serve test test-all lint audit fix docs experiments tables dist images clean
.DEFAULT_GOAL := help

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

LOOPS := hatch_build.py $(wildcard shared/*.c shared/*/*.c shared/*/*/*.c)

.venv/.ready: uv.lock pyproject.toml Makefile $(LOOPS)
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Commingle needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv sync --locked --quiet --inexact $(if $(wildcard shared/libloops.so.1),,--reinstall-package commingle)
	@test -f shared/libloops.so.1 || { echo "The loops in C were not built: install a C compiler (gcc or clang); $(BIN)/hatchling build -t wheel says what is missing"; exit 1; }
	$(BIN)/python -m compileall -q .dev/commingle coordinator party_agent services shared
	@touch $@

demo: .venv/.ready ## run a whole consortium on this machine, and see what its release answers
	$(BIN)/commingle demo --out demo

demo-serve: .venv/.ready ## keep a consortium open in your browser: decide on a proposal, then ask the release
	$(BIN)/commingle demo

# the workers take the cores: threads of their arithmetic would only wait for each other
test test-all: export OPENBLAS_NUM_THREADS := 1
# and their files lie in memory where it has 4 GB to spare: half of the time went to waiting for disks (fsync)
MEMORY := $(shell [ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null && echo /dev/shm)
test test-all: export TMPDIR := $(or $(MEMORY),$(TMPDIR),/tmp)

# their workers compile all test files anew at every run where Python may not keep what it compiled
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: .venv/.ready ## the fast tests; everything at one path: make test T=tests/shared
	$(BIN)/pytest $(if $(T),$(T),$(PARALLEL) -m "not slow")

test-all: .venv/.ready ## all tests, with processes, both databases, fuzzing and simulations
	$(BIN)/pytest $(PARALLEL)

lint: .venv/.ready ## ruff, mypy --strict, import contracts, dependency audit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2 || { [ $$? -eq 2 ] && $(BIN)/mypy; } # by itself where no worker starts within three seconds
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory audit

audit: .venv/.ready ## hold the locked dependencies against published advisories
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh deploy/audit-dependencies.sh

fix: .venv/.ready ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/.docs-ready: .venv/.ready
	$(BIN)/uv sync --locked --quiet --inexact --group docs
	@touch $@

docs: .venv/.docs-ready ## build the documentation site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

experiments: export OPENBLAS_NUM_THREADS := 1

experiments: .venv/.ready ## list the measurements on tables; E=wang2018 runs one again, E=all every one, DATA=DIR says where tables are
	$(BIN)/python -m benchmarks.experiments $(E) $(if $(DATA),--data $(DATA))

tables: .venv/.ready ## make the tables that DATA=DIR lacks from their sources, fetched or in SOURCES=DIR
	$(BIN)/python -m benchmarks.make_tables $(if $(DATA),--data $(DATA)) $(if $(SOURCES),--sources $(SOURCES))

DIST := dist
IMAGES := images
IMAGE := commingle:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
-include deploy/images.env
PYTHON_IMAGE ?=
BASE = $(subst @sha256:, ,$(PYTHON_IMAGE)) # a builder keeps no image of that name: what pins it is its digest

CHECKOUT = @git rev-parse --verify --quiet HEAD >/dev/null || { echo "make $@ works in a git checkout only: provenance.json names its commit"; exit 1; }

# of the folder that is made, whatever it was built from, and a signature where KEY=FILE names an SSH key
define published
$(BIN)/python deploy/materials.py $@ $(1) $(2) >$(1).made && mv $(1).made $(1)/provenance.json
cd $(1) && sha256sum -- * >SHA256SUMS && cat SHA256SUMS
$(if $(KEY),ssh-keygen -q -Y sign -f $(KEY) -n commingle $(1)/SHA256SUMS)
endef

dist: .venv/.ready ## build wheel, source archive and bill of materials in dist/, with provenance and checksums; KEY=FILE signs them
	$(CHECKOUT)
	rm -rf $(DIST)
	$(BIN)/hatchling build --directory $(DIST)
	$(BIN)/uv export --quiet --locked --no-dev --no-emit-project --all-extras --format cyclonedx1.5 --output-file $(DIST)/sbom.cdx.json
	$(call published,$(DIST))

images: .venv/.ready ## build the image of all roles in images/, as dist does; from the base that deploy/images.env pins, or PYTHON_IMAGE
	$(CHECKOUT)
	$(if $(filter file,$(origin PYTHON_IMAGE)),sh deploy/images.sh check)
	rm -rf $(IMAGES) && mkdir $(IMAGES)
	docker build --quiet --build-arg PYTHON_IMAGE=$(PYTHON_IMAGE) --file deploy/Dockerfile --tag $(IMAGE) .
	docker save $(IMAGE) --output $(IMAGES)/commingle.tar
	docker run --rm --interactive --network none --entrypoint sh $(IMAGE) -s <deploy/packages.sh >$(IMAGES)/packages
	$(BIN)/python deploy/materials.py sbom <$(IMAGES)/packages >$(IMAGES)/sbom.cdx.json && rm $(IMAGES)/packages
	$(call published,$(IMAGES),$(firstword $(BASE))=$(or $(word 2,$(BASE)),$$(docker image inspect --format '{{.Id}}' $(PYTHON_IMAGE) | cut -d: -f2)))

clean:
	rm -rf .venv demo dist images experiments site shared/libloops.so.1
