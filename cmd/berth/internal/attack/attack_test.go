package attack_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"berth/cmd/berth/internal/attack"
	"berth/cmd/berth/internal/daemontest"
	"berth/proto"
)

var target *daemontest.Daemon

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == attack.ProbeCommand { // inside a container, where this very program was copied to
		if err := attack.RunProbe(os.Stdout, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(func() int {
		var err error
		if target, err = daemontest.New("--stop-on-exit"); err != nil {
			fmt.Fprintln(os.Stderr, "preparing the attacks:", err)
			return 1
		}
		defer target.Close()
		return m.Run()
	}())
}

// Every attack is held, in every runtime class.
func TestAttacks(t *testing.T) {
	for _, c := range attack.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			err := attack.Run(context.Background(), attack.Options{Host: target.URL, Key: target.Key, Only: []string{c.Name}, Classes: []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor}}, func(r attack.Report) {
				if r.Verdict != attack.Held && r.Verdict != attack.Unneeded {
					t.Errorf("%s %s: %s: %s", r.Name, r.Class, r.Verdict, r.Happened)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
