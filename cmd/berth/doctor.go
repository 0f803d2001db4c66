package main

import (
	"context"
	"path/filepath"

	"berth/cmd/berth/internal/cli"
	"berth/session/containerd"
)

// examineHost is `berth doctor`'s look at this machine, with the eyes of the runtime that `berth serve` would open.
func examineHost(ctx context.Context, o cli.DoctorOptions, report func(cli.Finding)) error {
	bin, err := binDir(o.BinDir)
	if err != nil {
		return err
	}
	for _, f := range containerd.Doctor(ctx, containerd.Config{Dir: filepath.Join(o.Dir, "runtime"), BinDir: bin}) {
		report(cli.Finding{Name: f.Name, Grade: cli.Grade(f.Grade), Found: f.Found, Why: f.Why, Fix: f.Fix})
	}
	return ctx.Err()
}
