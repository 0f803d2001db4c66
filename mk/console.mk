# The libraries of the web console, from npm by the versions and hashes of console/package-lock.json. Git ignores the
# copies in console/libs, and `go build` embeds what is there.
#
# Included by the top Makefile, after mk/setup.mk, whose target setup installs npm.

CONSOLE_LIBS := console/libs/uplot.mjs
CONSOLE_NPM := .cache/console-libs

.PHONY: console-libs
console-libs: $(CONSOLE_LIBS) ## take the web console's libraries from npm

$(CONSOLE_LIBS): console/package.json console/package-lock.json mk/console.mk | setup
	@echo "taking the console's libraries from npm"
	@mkdir -p $(CONSOLE_NPM) && cp console/package.json console/package-lock.json $(CONSOLE_NPM)
	@cd $(CONSOLE_NPM) && npm ci --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null
	@cd $(CONSOLE_NPM)/node_modules && \
		sed '/^\/\/# sourceMappingURL/d' preact/dist/preact.mjs >$(abspath $(@D))/preact.mjs && \
		sed '/^\/\/# sourceMappingURL/d' preact/hooks/dist/hooks.mjs >$(abspath $(@D))/hooks.mjs && \
		sed '/^\/\/# sourceMappingURL/d' htm/dist/htm.mjs >$(abspath $(@D))/htm.mjs && \
		sed '/^\/\/# sourceMappingURL/d' @xterm/xterm/lib/xterm.mjs >$(abspath $(@D))/xterm.mjs && \
		sed '/^\/\/# sourceMappingURL/d' @xterm/addon-fit/lib/addon-fit.mjs >$(abspath $(@D))/addon-fit.mjs && \
		cp @xterm/xterm/css/xterm.css uplot/dist/uPlot.min.css $(abspath $(@D)) && \
		cp uplot/dist/uPlot.esm.js $(abspath $@)
