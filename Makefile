# Two commands are enough: `make demo` and `make test`. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: docs docs-serve release-check notebooks dependencies demo test test-fast coverage soak fhir-check front-check check lint types psychopy-check bench bench-peers bench-store bench-serve results results-paper results-rules results-peers results-other picture screenshots constraints sbom clean help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

picture: $(STAMP) ## the README's picture from the demo, and those of docs/any-test.md from examples/
	$(BIN)/earshift demo --out build/demo
	cp build/demo/audiograms.png docs/demo.png
	$(BIN)/python examples/contrast_sensitivity.py docs/any-test-contrast.png
	$(BIN)/python examples/tone_duration.py docs/any-test-duration.png
	$(BIN)/python examples/gap_detection.py docs/any-test-gap.png

screenshots: $(STAMP) ## pictures of the web app's pages, from the app itself
	$(BIN)/python docs/make_screenshots.py docs/images
	$(BIN)/python docs/screenshots_examiner.py docs/images

demo: $(STAMP) ## the main job in one go: a first exam, then two screens
	$(BIN)/earshift demo

# One worker more than cores: tests that listen in real time, or start a server, wait more than they
# compute.
test: $(STAMP) ## lint, types and all tests: about fifteen minutes on two cores
	$(MAKE) --no-print-directory check fhir-check
	$(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal

FAST := not browser and not server and not kills and not cluster and not slow
test-fast: $(STAMP) ## lint, types and the tests that need no other program: about two minutes
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest -n auto --dist worksteal -m "$(FAST)"

COVERED := engine store clinic
coverage: $(STAMP) ## branch coverage of engine, store and clinic, compiled functions aside
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not browser and not kills and not cluster" -q \
		$(COVERED:%=--cov=earshift.%) --cov-report=term:skip-covered --cov-fail-under=90

# The checker of FHIR value sets runs on Node.js. Without it the tests name the group they leave out;
# in CI that is a failure.
FHIR := build/fhir_check/node_modules/.installed
$(FHIR): tests/fhir_check/package.json
	mkdir -p build/fhir_check && cp $< build/fhir_check/
	npm install --prefix build/fhir_check --no-package-lock --ignore-scripts --no-audit --no-fund --silent
	@touch $@

fhir-check: ## install the checker of FHIR value sets, where there is Node.js
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory $(FHIR); \
	elif [ -n "$$CI" ]; then echo "npm is missing (Debian: nodejs, npm)"; exit 1; \
	else echo "left out: FHIR value sets (no npm)"; fi

# Types and lint of the pages' scripts, by tools that run on Node.js. The types of the API come from
# its own description. Nothing is fetched once the packages are there.
FRONT := build/front/node_modules/.installed
$(FRONT): frontend/package.json
	mkdir -p build/front && cp $< build/front/
	npm install --prefix build/front --no-package-lock --ignore-scripts --no-audit --no-fund --silent
	@touch $@

front-check: $(STAMP) ## types and lint of the web pages' scripts, where there is Node.js
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory front-checked; \
	elif [ -n "$$CI" ]; then echo "npm is missing (Debian: nodejs, npm)"; exit 1; \
	else echo "left out: types and lint of the web pages' scripts (no npm)"; fi

.PHONY: front-checked
front-checked: $(FRONT)
	cp frontend/eslint.config.js build/front/
	$(BIN)/python frontend/openapi.py build/front/openapi.json
	build/front/node_modules/.bin/openapi-typescript build/front/openapi.json \
		--default-non-nullable=false --output build/front/api.d.ts > build/front/types.log 2>&1 \
		|| { cat build/front/types.log; exit 1; }
	build/front/node_modules/.bin/tsc --project frontend
	build/front/node_modules/.bin/eslint --config build/front/eslint.config.js --max-warnings 0 \
		src/earshift/web/static

# Two programs wait for each other's disk more than they compute.
soak: $(STAMP) ## 1,000 kills on every database (make test: 20), a fault at every step (make test: 8 each)
	EARSHIFT_KILLS=1000 EARSHIFT_FAULTS=1000000 EARSHIFT_STOPS=50 $(BIN)/python -m pytest -n 2 -rP \
		tests/store/test_kills.py tests/store/test_immediate_stops.py tests/faults

check: lint types front-check ## lint and types only

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

DOCS := $(VENV)/.docs
$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(DOCS) ## the documentation as a site in build/site; every warning and broken link is an error
	$(BIN)/mkdocs build --quiet --clean

PORT ?= 8000
docs-serve: $(DOCS) ## the same on this machine alone, at port 8000 (PORT=...), where its search works
	$(BIN)/mkdocs serve --dev-addr 127.0.0.1:$(PORT)

# PsychoPy without its own requirements, with the few that its handlers import.
psychopy-check: $(STAMP) ## es.Handler beside PsychoPy's handlers; the code of others in docs/coming-from.md
	$(PYTHON) -m venv .venv-psychopy
	.venv-psychopy/bin/pip install --quiet --disable-pip-version-check --no-deps psychopy==2026.2.5
	.venv-psychopy/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e . \
		-r benchmarks/psychopy-requirements.txt
	.venv-psychopy/bin/pip install --quiet --disable-pip-version-check questplus==2023.1 psignifit==4.3
	.venv-psychopy/bin/python benchmarks/psychopy_check.py
	.venv-psychopy/bin/python benchmarks/coming_from_check.py docs/coming-from.md

release-check: ## build sdist and wheel, look at them, test the wheel with oldest and newest dependencies
	$(PYTHON) tools/release_check.py

dependencies: $(STAMP) ## what each package serves and costs on disk: docs/dependencies.md
	$(BIN)/python benchmarks/dependencies.py docs

notebooks: $(STAMP) ## run the notebooks and keep what they show
	$(BIN)/python notebooks/notebooks.py

bench: $(STAMP) ## speed, as ratios in one run (with the peers when bench-peers has built them)
	$(BIN)/python benchmarks/bench.py

# AEPsych and GPy ask for different numpy versions; GPy runs well with AEPsych's, so it goes in
# without its own requirements.
bench-peers: $(STAMP) ## build the peers' own environment, bench with them, write docs/benchmarks.md
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-peers/bin/pip install --quiet --disable-pip-version-check -r benchmarks/peers-requirements.txt
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --no-deps GPy==1.15.0 paramz==0.10.0
	$(BIN)/python benchmarks/bench.py --peers .venv-peers/bin/python --write docs

bench-serve: $(STAMP) ## up to a hundred listeners at once, write docs/benchmarks-serve.md
	$(BIN)/python benchmarks/serve_bench.py --write docs

bench-store: $(STAMP) ## speed of the store with 100,000 people, write docs/benchmarks-store.md
	$(BIN)/python benchmarks/store_bench.py --people 100000 --imported 5000 --write docs

# The figures of docs/results.md: about four hours on 2 cores, resumable. DATA holds the real ears.
DATA ?= ../shared/data
EARS := $(DATA)/nhanes_ears_2011_2016.csv.gz
results: $(STAMP) ## run all studies and write docs/results.md from them
	@test -r $(EARS) || { echo "make results needs the real ears: $(EARS) (set DATA=FOLDER)"; exit 1; }
	$(MAKE) --no-print-directory paper-studies
	$(MAKE) --no-print-directory results-rules

# The part of docs/results.md on screening by rule, first exams, the notch and both ears: at most
# three hours on 2 cores, resumable. The parts of studies that were not run stay as they are.
results-rules: $(STAMP) ## run the studies of clinical verdicts and write their part of docs/results.md
	@test -r $(EARS) || { echo "make results-rules needs the real ears: $(EARS) (set DATA=FOLDER)"; exit 1; }
	$(BIN)/earshift study rules --ears $(EARS) --workers $(DATA)/worker_pairs.csv.gz --out results/rules --json > /dev/null
	$(BIN)/earshift study notch --ears $(EARS) --notched 150 --out results/notch --json > /dev/null
	$(BIN)/earshift study both --ears $(EARS) --people 60 --screened 60 --out results/both --json > /dev/null
	$(BIN)/python studies/collect_results.py results docs

# First exams by AEPsych on the same listeners; after `make bench-peers`, which builds its environment.
results-peers: $(STAMP)
	$(BIN)/python benchmarks/peer_exams.py $(EARS) results/rules --peers .venv-peers/bin/python --count 8

results-other: $(STAMP) ## whether intervals hold the truth on other axes: docs/any-test-coverage.md
	$(BIN)/python studies/other_axes.py docs

results-paper: $(STAMP) ## the paper's part of the results alone: under half an hour on 2 cores
	@test -r $(EARS) || { echo "make results-paper needs the real ears: $(EARS) (set DATA=FOLDER)"; exit 1; }
	$(MAKE) --no-print-directory paper-studies
	$(BIN)/python studies/collect_results.py results docs

JOBS ?= 2
.PHONY: paper-studies
paper-studies: $(STAMP)
	$(BIN)/earshift study paper --baseline-reps 5 --panel-reps 20 --out results/best --jobs $(JOBS) --json > /dev/null
	$(BIN)/earshift study ears --ears $(EARS) --half tuning --protocols candidates --reps 40 --out results/tuning --jobs $(JOBS) --json > /dev/null
	$(BIN)/earshift study ears --ears $(EARS) --half held-back --protocols best,best-0.1,paper,paper-vague,literal --reps 40 --out results/ears --jobs $(JOBS) --json > /dev/null
	for name in best-0.1 paper paper-vague literal; do \
		$(BIN)/earshift study paper --protocol $$name --baseline-reps 0 --panel-reps 5 --out results/$$name --jobs $(JOBS) --json > /dev/null || exit 1; \
	done
	$(BIN)/earshift study sensitivity --reps 4 --out results/sensitivity --jobs $(JOBS) --json > /dev/null
	mkdir -p results/ep
	$(BIN)/python studies/ep_lapses.py $(EARS) > results/ep/results.md
	$(BIN)/earshift study floor --reps 4 --out results/floor --jobs $(JOBS) --json > /dev/null
	$(BIN)/earshift study options --reps 2 --out results/options --jobs $(JOBS) --json > /dev/null

constraints: ## pin versions and hashes, without addresses
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --all-extras --no-emit-index-url \
		--no-emit-find-links pyproject.toml -o constraints.txt
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --extra clinic --extra postgresql \
		--constraint constraints.txt --generate-hashes --no-emit-index-url --no-emit-find-links \
		pyproject.toml -o requirements-hashes.txt

sbom: $(STAMP) ## list all packages with versions and licences for programs: build/sbom.cdx.json
	$(BIN)/python tools/sbom.py build/sbom.cdx.json

clean:
	rm -rf $(VENV) .venv-peers .venv-psychopy build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
