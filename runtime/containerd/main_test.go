package containerd

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/images"
	"berth/runtime/mountns"
	"berth/session"
	"berth/test/needs"
)

// The tests run the real containerd, runc, gVisor, btrfs and kernel. They need root and the programs that "make
// runtimes" builds, and fail where those are missing.

var (
	guestPath string // the test guest, built once
	binDir    string
)

func TestMain(m *testing.M) {
	needs.Main("make containers")
	if err := mountns.Private(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if dir := os.Getenv("BERTH_TEST_DAEMON"); dir != "" {
		os.Exit(testDaemon(dir))
	}
	os.Exit(withGuest(m.Run))
}

// withGuest builds the test guest, calls run, and removes the guest.
func withGuest(run func() int) int {
	dir, err := os.MkdirTemp("", "berth-guest-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		defer os.RemoveAll(dir)
		guestPath = filepath.Join(dir, "guest")
		cmd := exec.Command("go", "build", "-o", guestPath, "./testdata/guest")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the test guest:", err)
		return 1
	}
	if binDir = os.Getenv("BERTH_BIN"); binDir == "" {
		_, file, _, _ := runtime.Caller(0)
		binDir = filepath.Join(filepath.Dir(file), "..", "..", "bin")
	}
	return run()
}

func testConfig(dir string) Config {
	return Config{
		Dir: dir, BinDir: binDir, Guest: guestPath, PoolBytes: 1 << 30, Handshake: pingTest,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// pingTest checks that the test guest answers.
func pingTest(ctx context.Context, conn net.Conn) (net.Conn, error) {
	ans, err := converse(ctx, conn, guestRequest{Op: "ping"})
	if err == nil && ans.Text != "pong" {
		err = fmt.Errorf("the guest answers %+v", ans)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// openTest opens a Runtime in a directory of its own. At the end it removes everything that the Runtime made.
func openTest(t testing.TB) *Runtime {
	t.Helper()
	return openIn(t, t.TempDir())
}

func openIn(t testing.TB, dir string) *Runtime {
	t.Helper()
	return openWith(t, testConfig(dir))
}

func openWith(t testing.TB, cfg Config) *Runtime {
	t.Helper()
	r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("opening the runtime (needs root, make runtimes, btrfs-progs): %v", err)
	}
	t.Cleanup(func() {
		if r.client == nil {
			return // the test closed it
		}
		stopAll(t, r)
		if err := r.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
		_ = unix.Unmount(filepath.Join(r.run, "r", images.Namespace, "null-netns"), unix.MNT_DETACH) // made by runsc
		os.RemoveAll(r.run)
	})
	return r
}

func stopAll(t testing.TB, r *Runtime) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	inv, err := r.List(ctx)
	if err != nil {
		t.Errorf("listing: %v", err)
	}
	for _, id := range inv.Sandboxes {
		if err := r.Stop(ctx, id); err != nil {
			t.Errorf("stopping %s: %v", id, err)
		}
	}
}

// newID makes an ID in the way of the core.
func newID(prefix string) string {
	var bits [16]byte
	_, _ = rand.Read(bits[:])
	return proto.ID(prefix, bits)
}

var testLimits = proto.Limits{CPUs: 1, MemoryBytes: 128 << 20, PIDs: 64, DiskBytes: 32 << 20, OpenFiles: 512}

// startTest starts a sandbox of the test image with a new ID and workspace.
func startTest(t *testing.T, r *Runtime, class proto.RuntimeClass) (id string, spec session.Spec) {
	t.Helper()
	spec = session.Spec{
		Image: testImage(t, r), Class: class, Workspace: newID(proto.WorkspacePrefix), Layer: newID(proto.LayerPrefix),
		Limits: testLimits,
	}
	id = newID(proto.ContainerPrefix)
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatalf("starting a %s sandbox: %v", class, err)
	}
	return id, spec
}

func testImage(t testing.TB, r *Runtime) string {
	t.Helper()
	img, err := r.Images().Resolve(t.Context(), "test")
	if err == nil {
		return img.Digest
	}
	img, err = r.Images().Import(t.Context(), "test", bytes.NewReader(ociArchive(t, "FOO=bar")), nil)
	if err != nil {
		t.Fatalf("importing the test image: %v", err)
	}
	return img.Digest
}

type guestRequest struct {
	Op   string `json:"op"`
	Path string `json:"path,omitempty"`
	Size int64  `json:"size,omitempty"`
	UID  int    `json:"uid,omitempty"`
}

type guestAnswer struct {
	Text   string            `json:"text"`
	Err    string            `json:"err"`
	Number int64             `json:"number"`
	Probes map[string]string `json:"probes"`
}

// askTimeout is the time that a test guest has for an answer, on any machine. A guest that hangs fails its own test
// only.
const askTimeout = 2 * time.Minute

// ask sends one request to the test guest of sandbox id.
func ask(t *testing.T, r *Runtime, id string, req guestRequest) guestAnswer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), askTimeout)
	defer cancel()
	ans, err := tryAsk(ctx, r, id, req)
	if err != nil {
		t.Fatalf("asking the guest to %s: %v", req.Op, err)
	}
	return ans
}

func tryAsk(ctx context.Context, r *Runtime, id string, req guestRequest) (guestAnswer, error) {
	conn, err := r.Dial(ctx, id)
	if err != nil {
		return guestAnswer{}, err
	}
	defer conn.Close()
	return converse(ctx, conn, req)
}

func converse(ctx context.Context, conn net.Conn, req guestRequest) (ans guestAnswer, err error) {
	deadline, _ := ctx.Deadline() // the zero time means no deadline
	_ = conn.SetDeadline(deadline)
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return ans, err
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return ans, err
	}
	return ans, json.Unmarshal(line, &ans)
}

// A tarFile is one entry of an archive made by a test.
type tarFile struct {
	name, body, link string
	kind             byte
	mode             int64
	uid              int
}

func tarOf(t testing.TB, files ...tarFile) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		hdr := &tar.Header{Name: f.name, Size: int64(len(f.body)), Linkname: f.link, Typeflag: f.kind,
			Mode: f.mode, Uid: f.uid, Gid: f.uid}
		if f.kind == 0 {
			hdr.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(hdr); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ociArchive returns an OCI archive of one layer with the minimum of a root file system.
func ociArchive(t testing.TB, env ...string) []byte {
	t.Helper()
	layer := tarOf(t,
		tarFile{name: "etc/", kind: tar.TypeDir, mode: 0o755},
		tarFile{name: "etc/passwd", body: "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n", mode: 0o644},
		tarFile{name: "etc/shadow", body: "secret", mode: 0o600},
		tarFile{name: "home/", kind: tar.TypeDir, mode: 0o755, uid: 1000},
		tarFile{name: "workspace/", kind: tar.TypeDir, mode: 0o755}, // as most images of ours have it
	)
	return ociArchiveOf(t, runtime.GOARCH, layer, env)
}

func ociArchiveOf(t testing.TB, arch string, layer []byte, env []string) []byte {
	t.Helper()
	conf, _ := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux", "config": map[string]any{"Env": env, "Entrypoint": []string{"/evil"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sha(layer)}},
	})
	mf, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:" +
			sha(conf), "size": len(conf)},
		"layers": []any{map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:" +
			sha(layer), "size": len(layer)}},
	})
	idx, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "manifests": []any{map[string]any{
			"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:" + sha(mf), "size": len(mf),
			"annotations": map[string]string{"org.opencontainers.image.ref.name": "named:1"},
		}},
	})
	return tarOf(t,
		tarFile{name: "oci-layout", body: `{"imageLayoutVersion":"1.0.0"}`, mode: 0o644},
		tarFile{name: "index.json", body: string(idx), mode: 0o644},
		tarFile{name: "blobs/sha256/" + sha(conf), body: string(conf), mode: 0o644},
		tarFile{name: "blobs/sha256/" + sha(mf), body: string(mf), mode: 0o644},
		tarFile{name: "blobs/sha256/" + sha(layer), body: string(layer), mode: 0o644},
	)
}
