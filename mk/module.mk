# Renames the Go module, for a fork or a place where it is hosted.
#
# Included by the top Makefile.

# The path of the module takes the place of the programs' PATH, which make's own environment still has.
.PHONY: module test-module
module: ## rename the Go module everywhere: make module PATH=example.org/berth
	@PATH=$$(/bin/sed -zn 's/^PATH=//p' /proc/$$PPID/environ | /usr/bin/tr -d '\0') /bin/sh mk/module '$(PATH)'

test-module: ## rename the module in a copy, vet all of it and run the house rules there (5 minutes)
	@BERTH_MODULE=1 go test -count=1 -timeout 40m -v ./test/module
