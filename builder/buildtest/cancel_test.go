package buildtest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/client"
	"berth/proto"
	"berth/test/daemontest"
)

// A canceller begins a build, cancels it when the endless command runs, and returns its output.
type canceller func(*testing.T, *client.Client, proto.BuildOptions, map[string]string) string

// TestRebuildAfterCancel cancels a build in its second step, in each class and each way. Nothing of that step is left,
// and the next build takes the first step from the cache.
func TestRebuildAfterCancel(t *testing.T) {
	c := connect(t, daemon)
	for _, class := range classes {
		for how, cancel := range map[string]canceller{
			"leave": cancelByLeaving, "delete": cancelByID, "interrupt": cancelByInterrupt,
		} {
			t.Run(string(class)+"/"+how, func(t *testing.T) {
				first := "FROM base\nUSER root\nRUN date +%N > /first && echo " + how + string(class) + "\n"
				files := map[string]string{"Dockerfile": first + "RUN true\n"}
				o := proto.BuildOptions{Name: "resumed", Class: class}
				if _, r, err := build(t.Context(), c, o, contextOf(t, files), nil); err != nil {
					t.Fatal(err, r.logs)
				}
				before := remains(t, daemon)
				files["Dockerfile"] = first + "RUN head -c 8M /dev/urandom > /second; echo it-runs; sleep 1000\n"
				if logs := cancel(t, c, o, files); !strings.Contains(logs, "it-runs") {
					t.Fatalf("output %q", logs)
				}
				untilNoneRuns(t, c)
				if left, _ := filepath.Glob(filepath.Join(daemon.Dir, layersDir, "*/fs/second")); len(left) > 0 {
					t.Errorf("what the cancelled step has written is left: %q", left)
				}
				files["Dockerfile"] = first + "RUN true\n"
				_, r, err := build(t.Context(), c, o, contextOf(t, files), nil)
				if err != nil || r.cached != 2 || r.ran != 0 {
					t.Errorf("the build after it: %+v, %v", r, err)
				}
				nothingLeft(t, daemon)
				if after := remains(t, daemon); !slices.Equal(before, after) {
					t.Errorf("the cancelled build left something:\n%q\nbefore it:\n%q", after, before)
				}
			})
		}
	}
}

// cancelByLeaving builds until the endless command runs, and then goes away.
func cancelByLeaving(t *testing.T, c *client.Client, o proto.BuildOptions, files map[string]string) string {
	each, runs := untilRuns()
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-runs; leave() }()
	_, r, err := build(ctx, c, o, contextOf(t, files), each)
	if err == nil {
		t.Error("a build succeeded whose client left")
	}
	return r.logs
}

// cancelByID builds until the endless command runs, and then cancels the build by its ID.
func cancelByID(t *testing.T, c *client.Client, o proto.BuildOptions, files map[string]string) string {
	each, runs := untilRuns()
	go func() {
		if err := c.CancelBuild(t.Context(), <-runs); err != nil {
			t.Error(err)
		}
	}()
	_, r, err := build(t.Context(), c, o, contextOf(t, files), each)
	if proto.CodeOf(err) != proto.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	return r.logs
}

// cancelByInterrupt builds by the command line until the endless command runs, and then interrupts that.
func cancelByInterrupt(t *testing.T, _ *client.Client, o proto.BuildOptions, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program, err := daemontest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--host", daemon.URL, "image", "build", "-t", o.Name, "--runtime-class",
		string(o.Class), dir)
	cmd.Env = append(os.Environ(), "BERTH_API_KEY="+daemon.Key)
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for lines := bufio.NewScanner(said); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if strings.HasSuffix(lines.Text(), "  it-runs") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a build succeeded that was interrupted")
	}
	return all.String()
}

// layersDir is where layers of images and of builds are, below the data directory.
const layersDir = "runtime/ctr/io.containerd.snapshotter.v1.overlayfs/snapshots"

// untilNoneRuns waits until no build runs.
func untilNoneRuns(t *testing.T, c *client.Client) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // no event tells of it
		list, err := c.Builds(t.Context())
		if err != nil || time.Now().After(end) {
			t.Fatalf("builds that run: %+v, %v", list, err)
		}
		if len(list.Builds) == 0 {
			return
		}
	}
}

// cgroupsOf returns the cgroups whose names begin like this, of all daemons on this machine.
func cgroupsOf(prefix string) []string {
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/berth/" + prefix + "*")
	unified, _ := filepath.Glob("/sys/fs/cgroup/berth/" + prefix + "*")
	return slices.Concat(groups, unified)
}

// remains says what builds use on the host: the number of layers, and the cgroups and mounts of sandboxes.
func remains(t *testing.T, d *daemontest.Daemon) (all []string) {
	t.Helper()
	layers, _ := filepath.Glob(filepath.Join(d.Dir, layersDir, "*"))
	groups := slices.Concat(cgroupsOf(proto.ContainerPrefix), cgroupsOf(proto.BuildPrefix))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	all = append(groups, fmt.Sprint(len(layers), " layers"))
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, d.Dir) || strings.Contains(line, d.RunDir()) {
			all = append(all, line)
		}
	}
	return all
}
