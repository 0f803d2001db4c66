package sandboximage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/recipe"
	"berth/test/needs"
)

func TestNamesLoad(t *testing.T) {
	if !slices.Contains(Names(), "base") {
		t.Fatalf("Names() = %v, without base", Names())
	}
	for _, name := range Names() {
		if _, err := load(name); err != nil {
			t.Errorf("load(%q): %v", name, err)
		}
	}
	_, err := load("nonesuch")
	if !errors.Is(err, &proto.Error{Code: proto.InvalidArgument}) || !strings.Contains(err.Error(), "base") {
		t.Errorf("load of an unknown image: %v; want InvalidArgument that lists the known", err)
	}
}

func TestBuildRefuses(t *testing.T) {
	for _, c := range []struct {
		o    Options
		code proto.Code
		want string
	}{
		{Options{Name: "nonesuch"}, proto.InvalidArgument, "nonesuch"},
		{Options{Name: "base", CacheDir: `/tmp/"quoted"`}, proto.InvalidArgument, "cache directory"},
	} {
		_, err := Build(t.Context(), c.o)
		if proto.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Build(%+v): %v; want %s about %q", c.o, err, c.code, c.want)
		}
	}
}

func TestBuildWithoutTools(t *testing.T) {
	def, err := load("full")
	if list := toolsOf(def); err != nil || len(list) != len(tools)+2 || list[len(list)-2] != pip ||
		list[len(list)-1] != npm {
		t.Errorf("an image with wheels and modules needs %v, %v", list, err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = Build(t.Context(), Options{Name: "base", CacheDir: t.TempDir()})
	if proto.CodeOf(err) != proto.Unsupported || !strings.Contains(err.Error(), "apt-get install mmdebstrap") {
		t.Errorf("without mmdebstrap: %v; want Unsupported that says what to install", err)
	}
}

// TestBuildWithoutRoot builds in a thread that has given up root.
func TestBuildWithoutRoot(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	got := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if _, _, no := syscall.RawSyscall(syscall.SYS_SETRESUID, 1000, 1000, 1000); no != 0 {
			got <- no
			return
		}
		_, err := Build(context.Background(), Options{Name: "base", CacheDir: dir})
		got <- err
	}()
	if err := <-got; proto.CodeOf(err) != proto.PermissionDenied || !strings.Contains(err.Error(), "root") {
		t.Errorf("without root: %v; want PermissionDenied that asks for root", err)
	}
}

// TestBuildInterrupted cancels a build of a tiny image in the middle of its installation. It shares
// the downloads of the real cache.
func TestBuildInterrupted(t *testing.T) {
	needRoot(t)
	def, err := recipe.Parse(tinyImage(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &build{def: def, Env: &buildenv.Env{Cache: DefaultCacheDir, Progress: func(s buildenv.Step) {
		if s.Name == buildenv.StepConfiguring {
			cancel()
		}
	}}}
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := b.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := b.cached(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("a canceled build: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.Cache, "build-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(b.archive()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an archive of a canceled build: %v", err)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil ||
		strings.Contains(string(mounts), b.Cache+"/build-") {
		t.Errorf("mounts left behind (%v)", err)
	}
	if pids := processesBelow(t, b.Cache+"/build-"); len(pids) > 0 {
		t.Errorf("processes left behind: %v", pids)
	}
}

// processesBelow are the processes whose root or working directory begins with prefix.
func processesBelow(t *testing.T, prefix string) (pids []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/[rc][ow][od]*")
	if err != nil || len(links) == 0 {
		t.Fatalf("no processes to look at: %v", err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, prefix) {
			pids = append(pids, link)
		}
	}
	return pids
}

func needRoot(t *testing.T) {
	t.Helper()
	needs.Root(t)
	needs.Time(t)
}

// base is the archive of the base image: made once per machine, since Build reuses it.
func base(t *testing.T) Result {
	t.Helper()
	needRoot(t)
	start, last := time.Now(), ""
	r, err := Build(t.Context(), Options{Name: "base", Progress: func(s buildenv.Step) {
		if s.Name != last {
			t.Logf("%6.1fs %s %s %d/%d", time.Since(start).Seconds(), s.Name, s.Item, s.Done, s.Total)
			last = s.Name
		}
		if s.Total > 0 && s.Done > s.Total {
			t.Errorf("progress beyond its end: %+v", s)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
