# magpy's tasks. `make test` and `make demo` work in a fresh clone: they need a CPython 3.11-3.13 with
# its headers and a C++ compiler, and make a virtual environment in the checkout.
#
#   make test                     every test; the last line printed is pytest's closing line
#   make demo                     four models and a program torch.compile refuses, in a few minutes
#   make docs                     the site, in build/site
#   make lint | bench | clean
#   PYTHON=python3.12 make test   another interpreter (its environment is .venv-3.12)
#   TORCH=2.12.0, PYTEST_ARGS="-k guards"

TORCH ?= 2.13.0
# The first supported interpreter. A name on PATH may be a shim that cannot run: each is tried.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.11 python3.12 python3.13 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1 \
	&& { echo $$p; break; }; done)
endif
ifeq ($(strip $(PYTHON)),)
$(error magpy needs CPython 3.11, 3.12 or 3.13; none found on PATH. Name one: make PYTHON=/path/to/python3.12)
endif

PYVERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
ifeq ($(PYVERSION),)
$(error $(PYTHON) cannot be run)
endif
VENV ?= .venv-$(PYVERSION)
PY := $(VENV)/bin/python
JOBS ?= 2
PYTEST_ARGS ?=
STAMP := $(VENV)/.installed-torch-$(TORCH)

.PHONY: all install build test demo lint docs bench clean print-pyversion
print-pyversion:
	@echo $(PYVERSION)

all: build

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check 'setuptools>=77' wheel
	@echo "installing torch $(TORCH) (this can take minutes)"
	$(PY) -m pip install --quiet --disable-pip-version-check torch==$(TORCH)
	MAGPY_WITHOUT_EXTENSIONS=1 $(PY) -m pip install --quiet --disable-pip-version-check \
		--no-build-isolation -e '.[test,docs]'
	@touch $@

install: $(STAMP)

# After the first install only what changed in csrc/ is compiled.
build: $(STAMP)
	@MAGPY_WERROR=1 $(PY) setup.py --quiet build_ext --inplace

test: build
	@$(PY) -m pytest tests -n $(JOBS) --dist worksteal -q $(PYTEST_ARGS)

demo: build
	@$(PY) -m demo

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m mypy

# A page that is missing, a dead link and a page in no menu are errors.
docs: $(STAMP)
	$(PY) -m mkdocs build --quiet --strict --site-dir build/site

bench: build
	$(PY) -m benchmarks --quick

clean:
	rm -rf build *.egg-info .venv-* magpy/*.so .pytest_cache .mypy_cache .ruff_cache
