# The two commands: `make demo` and `make test`. Everything they need, they set up.
.PHONY: setup demo test lint bench

setup:
	@scripts/setup.sh

demo: setup
	@.venv/bin/holdfast demo

test: setup
	@scripts/check.sh

lint: setup
	@scripts/lint.sh

bench: setup
	@.venv/bin/holdfast bench spine --quick
