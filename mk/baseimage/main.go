// Command baseimage builds the base image into the cache of `berth image build`.
//
// `make demo` runs it while berth itself still compiles: it links the room sandbox-image and little else, so it starts
// minutes earlier. `berth image build base` then finds the archive and uses it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	sandboximage "berth/sandbox-image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := sandboximage.Build(ctx, sandboximage.Options{Name: "base", Log: os.Stderr}); err != nil {
		fmt.Fprintln(os.Stderr, "baseimage:", err)
		os.Exit(1)
	}
}
