# The two commands: `make demo` and `make test`. Everything they need, they set up.
.PHONY: setup demo test lint bench evidence docs

setup:
	@scripts/setup.sh

demo: setup
	@.venv/bin/holdfast demo

test: setup
	@scripts/check.sh

lint: setup
	@scripts/lint.sh

docs: setup
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet
	@echo "read it: python3 -m http.server --bind 127.0.0.1 --directory build/site"

bench: setup
	@.venv/bin/holdfast bench spine --quick

evidence: setup
	@.venv/bin/holdfast bench evidence
