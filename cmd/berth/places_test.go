package main

import (
	"testing"

	"berth/cli/app"
	"berth/daemon"
)

// The client commands look for a daemon's files where the daemon puts them.
func TestDaemonFiles(t *testing.T) {
	want := app.Places{URL: daemon.URLFile(""), Key: daemon.KeyFile(""), CA: daemon.CAFile("")}
	if app.DaemonFiles != want {
		t.Errorf("%+v, not %+v", app.DaemonFiles, want)
	}
}
