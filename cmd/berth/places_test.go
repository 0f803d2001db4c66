package main

import (
	"testing"

	"berth/cli"
	"berth/daemon"
)

// The client commands look for a daemon's files where the daemon puts them.
func TestDaemonFiles(t *testing.T) {
	want := cli.Places{URL: daemon.URLFile(""), Key: daemon.KeyFile(""), CA: daemon.CAFile("")}
	if cli.DaemonFiles != want {
		t.Errorf("%+v, not %+v", cli.DaemonFiles, want)
	}
}
