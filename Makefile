# The front door. Each target brings a bare Debian 12 machine (as root) to
# where it can do its job; on a prepared machine nothing is installed.
BUILD := build/release

.PHONY: demo test check bench soak fuzz sanitize mutants device-bundle clean \
  format

demo:
	@tools/install_packages.sh build
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) --target signet
	@echo
	@echo 'A small Mixture-of-Experts model, part of this repository,'
	@echo 'continues "Alice was" on the CPU:'
	@echo
	$(BUILD)/signet run demo -p "Alice was" -n 64

test:
	@tools/install_packages.sh build
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) --target all signet_tests
	@ctest --test-dir $(BUILD) --output-on-failure -j $$(nproc) \
	  || { echo 'Tests: FAILED (the output of each is above)'; exit 1; }
	@echo 'Tests: all passed. The checks of the sources: make check'

check:
	@tools/install_packages.sh build check
	@cmake --preset release >/dev/null
	@tools/check

bench:
	@tools/install_packages.sh build
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) --target signet
	@tools/bench

# The drawn models and meshes of tests/soak, many more than a test run draws.
SOAK_COMBINATIONS := 10000

soak:
	@tools/install_packages.sh build
	@cmake --preset release >/dev/null
	@cmake --build $(BUILD) --target tests_soak
	SIGNET_SOAK_COMBINATIONS=$(SOAK_COMBINATIONS) $(BUILD)/bin/tests_soak

mutants:
	@tools/install_packages.sh build
	@tools/mutants

# Every target of fuzz/ for SIGNET_FUZZ_SECONDS each, an hour by default.
fuzz:
	@tools/install_packages.sh build fuzz
	@tools/fuzz

# Every test, under two sets of sanitizers.
sanitize:
	@tools/install_packages.sh build fuzz
	@tools/sanitize

# What is carried to a machine with a GPU and no packages: build/device.
device-bundle:
	@tools/install_packages.sh build
	@tools/device_bundle

clean:
	rm -rf build

format:
	@tools/install_packages.sh check
	@find src include tests examples fuzz -regex '.*\.\(h\|cpp\|cuh?\)' \
	  2>/dev/null | xargs clang-format-19 -i
