package pid1

import (
	"runtime"
	"testing"

	"berth/guest/wire"
)

// TestCommandsCountProcessors checks that a command learns the container's limit of processors, also in a shell after
// the limit has changed, unless its own environment says otherwise.
func TestCommandsCountProcessors(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("this machine has one processor")
	}
	w := newWorld(t, false)
	const show = "nproc; echo $PYTHON_CPU_COUNT"
	for _, k := range []struct {
		cmd  wire.Command
		want string
	}{
		{wire.Command{CPUs: 1}, "1\n1\n"},
		{wire.Command{CPUs: 1, Shell: "s"}, "1\n1\n"},
		{wire.Command{CPUs: 1, Shell: "s", Env: []string{"OMP_NUM_THREADS=7"}}, "7\n1\n"},
		{wire.Command{CPUs: 1, Env: []string{"OMP_NUM_THREADS=7"}}, "7\n1\n"},
		{wire.Command{CPUs: 1 << 20, Env: []string{"PYTHON_CPU_COUNT="}}, w.bash("nproc").stdout + "\n"},
	} {
		k.cmd.Text = show
		if r := w.run(k.cmd); r.stdout != k.want {
			t.Errorf("%+v: %q, want %q", k.cmd, r.stdout, k.want)
		}
	}
}
