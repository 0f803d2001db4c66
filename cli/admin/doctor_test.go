package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"berth/cli/app"
	"berth/cli/term"
)

// TestInterruptedDoctor checks that findings after an interruption are ignored.
func TestInterruptedDoctor(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	a := &app.App{Output: term.Output{Stdout: &out}, Config: app.Config{
		Doctor: func(ctx context.Context, _ app.DoctorOptions, report func(app.Finding)) error {
			report(app.Finding{Name: "kernel", Grade: app.GradeOK})
			interrupt()
			report(app.Finding{Name: "trial", Grade: app.GradeFail, Found: ctx.Err().Error()})
			return nil
		}}, Host: "127.0.0.1:1"}
	cmd := DoctorCommand(a)
	cmd.SetArgs([]string{})
	if err := cmd.ExecuteContext(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(out.String(), "kernel") ||
		strings.Contains(out.String(), "FAIL") || strings.Contains(out.String(), "daemon") {
		t.Errorf("%v; %s", err, out.String())
	}
}

// TestDoctorThatNobodyCanRead checks that a report that cannot be printed is not a success.
func TestDoctorThatNobodyCanRead(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"--quick"}, {"--quick", "--json"}} {
		a := &app.App{Output: term.Output{Stdout: full, Stderr: io.Discard}, Config: app.Config{
			Doctor: func(_ context.Context, _ app.DoctorOptions,
				report func(app.Finding)) error {
				report(app.Finding{Name: "kernel", Grade: app.GradeOK})
				return nil
			}}, Host: "127.0.0.1:1"}
		cmd := DoctorCommand(a)
		cmd.SetArgs(args)
		if err := cmd.Execute(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
