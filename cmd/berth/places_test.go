package main

import (
	"testing"

	"berth/cli/app"
	"berth/daemon"
	"berth/daemon/certs"
)

// TestDaemonFiles checks that the client commands and the daemon agree on the places of the daemon's files.
func TestDaemonFiles(t *testing.T) {
	want := app.Places{URL: daemon.URLFile(""), Key: daemon.KeyFile(""), CA: certs.CAFile(daemon.TLSDir(""))}
	if app.DaemonFiles != want {
		t.Errorf("%+v, not %+v", app.DaemonFiles, want)
	}
}
