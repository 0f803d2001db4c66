package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/session/validate"
	"berth/test/sessiontest"
)

// TestServeFlagsAreInTheManual checks that the manual documents every flag of serve.
func TestServeFlagsAreInTheManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(text)
	n := 0
	for line := range strings.Lines(serveCommand().Flags().FlagUsages()) {
		name := strings.Fields(line)[0]
		n++
		if !strings.Contains(manual, "`"+name+"`") && !strings.Contains(manual, "`"+name+" ") {
			t.Errorf("%s is not in it", name)
		}
	}
	if n < 20 {
		t.Errorf("%d flags", n)
	}
}

// TestServeRefusesWhatNoContainerCanHave checks that limits that allow no container are refused before the start,
// with the flag's name.
func TestServeRefusesWhatNoContainerCanHave(t *testing.T) {
	for _, tt := range [][3]string{
		{"--cpus", "0.001", "--cpus 0.001 is too little for a container; 0.01 is the least"},
		{"--cpus", "NaN", "--cpus NaN is too little"},
		{"--memory-bytes", "1", "--memory-bytes 1 is too little for a container; 16777216 is the least"},
		{"--pids", "1", "--pids 1 is too little for a container; 16 is the least"},
		{"--open-files", "1", "--open-files 1 is too little for a container; 256 is the least"},
		{"--disk-bytes", "1", "--disk-bytes 1 is too little for a container; 16777216 is the least"},
		{"--idle-timeout", "1ns", "--idle-timeout 1ns is not from 1s to 720h0m0s"},
		{"--max-lifetime", "1ms", "--max-lifetime 1ms is not from 1s to 8760h0m0s"},
		{"--exec-timeout", "25h", "--exec-timeout 25h0m0s is not from 0s to 24h0m0s"},
		{"--runtime-class", "vm", `--runtime-class: there is no runtime class "vm"; use runc or gvisor`},
		{"--runtime-classes", "runc,vm", `--runtime-classes: there is no runtime class "vm"; use runc, gvisor or both`},
		{"--pool-bytes", "1000", "--pool-bytes: 1000 bytes are too few for a disk pool, 268435456 is the least"},
	} {
		cmd := serveCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		cmd.SetArgs([]string{"--data", t.TempDir() + "/none", "--listen", "no address", tt[0], tt[1]})
		if err := cmd.Execute(); err == nil || !strings.HasPrefix(err.Error(), tt[2]) {
			t.Errorf("%s %s: %v", tt[0], tt[1], err)
		}
	}
}

// TestLeastLimits checks that a daemon's limits have the same minimum as those of requests.
func TestLeastLimits(t *testing.T) {
	least := validate.LeastLimits
	if err := (session.Config{Limits: least, IdleTimeout: 1e9, MaxLifetime: 1e9}).Check(); err != nil {
		t.Error(err)
	}
	if err := (session.Config{}).Check(); err != nil {
		t.Error(err)
	}
	s := sessiontest.New(t, session.Config{})
	s.Create(t, proto.CreateContainer{Limits: least})
	for name, l := range map[string]proto.Limits{
		"cpus": {CPUs: least.CPUs * 0.99}, "memory_bytes": {MemoryBytes: least.MemoryBytes - 1},
		"pids":       {PIDs: least.PIDs - 1},
		"disk_bytes": {DiskBytes: least.DiskBytes - 1}, "open_files": {OpenFiles: least.OpenFiles - 1},
	} {
		if _, err := s.Sessions.Create(t.Context(), sessiontest.Owner, proto.CreateContainer{Limits: l}); proto.CodeOf(
			err) != proto.InvalidArgument || proto.AsError(err).Item != "limits."+name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
