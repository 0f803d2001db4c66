# Checks and builds the Python SDK.
#
# Included by the top Makefile.

SDK_PYTHON := .cache/sdk-python

.PHONY: sdk-python
sdk-python: setup-test ## check the Python SDK's types, and build its wheel and sdist into .cache/sdk-python/dist
	@mkdir -p $(SDK_PYTHON)
	@cmp -s sdk/python/dev/requirements.txt $(SDK_PYTHON)/installed || { \
		python3 -m venv --clear $(SDK_PYTHON)/venv && \
		$(SDK_PYTHON)/venv/bin/python -m pip install --quiet --disable-pip-version-check \
			-r sdk/python/dev/requirements.txt && \
		cp sdk/python/dev/requirements.txt $(SDK_PYTHON)/installed; }
	@cd sdk/python && ../../$(SDK_PYTHON)/venv/bin/python dev/make_sync.py --check && \
		../../$(SDK_PYTHON)/venv/bin/mypy --cache-dir ../../$(SDK_PYTHON)/mypy && \
		../../$(SDK_PYTHON)/venv/bin/pyright
	@for way in dist again; do \
		rm -rf $(SDK_PYTHON)/source $(SDK_PYTHON)/$$way && mkdir $(SDK_PYTHON)/source && \
		git ls-files -z sdk/python | xargs -0 cp --parents -t $(SDK_PYTHON)/source && \
		cp LICENSE $(SDK_PYTHON)/source/sdk/python/ && \
		$(SDK_PYTHON)/venv/bin/python -m build --no-isolation --outdir $(SDK_PYTHON)/$$way \
			$(SDK_PYTHON)/source/sdk/python >$(SDK_PYTHON)/build.log 2>&1 || { cat $(SDK_PYTHON)/build.log; exit 1; }; \
	done
	@diff -r $(SDK_PYTHON)/dist $(SDK_PYTHON)/again && sha256sum $(SDK_PYTHON)/dist/*
