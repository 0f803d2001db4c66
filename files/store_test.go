package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/test/needs"

	"golang.org/x/sys/unix"
)

// A bench is a store on a disk of its own, with a clock that the test sets.
type bench struct {
	*Store
	dir string
	now time.Time
}

func newBench(t *testing.T, cfg Config) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir(), now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
	db, err := ledger.Open(filepath.Join(b.dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	cfg.Dir, cfg.Ledger, cfg.Now = filepath.Join(b.dir, "files"), db, func() time.Time { return b.now }
	if b.Store, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func (b *bench) put(t *testing.T, up Upload, content string) proto.StoredFile {
	t.Helper()
	if up.Owner == "" {
		up.Owner = "ann"
	}
	f, err := b.Put(t.Context(), up, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (b *bench) content(t *testing.T, owner, id string) string {
	t.Helper()
	r, _, err := b.Open(t.Context(), owner, id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// onDisk lists what is below a directory of the store.
func (b *bench) onDisk(t *testing.T, sub string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.cfg.Dir, sub))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func wantCode(t *testing.T, err error, code proto.Code) {
	t.Helper()
	if proto.CodeOf(err) != code {
		t.Fatalf("got %v (%s), want %s", err, proto.CodeOf(err), code)
	}
}

func TestPutGetOpenDelete(t *testing.T) {
	b := newBench(t, Config{})
	up := Upload{Owner: "ann", Filename: "../../x.csv", MIMEType: "text/csv", Scope: "container_1", Downloadable: true}
	f := b.put(t, up, "a,b\n1,2\n")
	sum := sha256.Sum256([]byte("a,b\n1,2\n"))
	want := proto.StoredFile{ID: f.ID, Owner: "ann", Filename: "x.csv", MIMEType: "text/csv", SizeBytes: 8,
		SHA256: hex.EncodeToString(sum[:]), CreatedAt: proto.At(b.now), Downloadable: true, Scope: "container_1"}
	if f != want || !proto.ValidID(proto.FilePrefix, f.ID) {
		t.Fatalf("got %+v\nwant %+v", f, want)
	}
	if got, err := b.Get(t.Context(), "ann", f.ID); err != nil || got != want {
		t.Fatalf("Get: %+v, %v", got, err)
	}
	if got := b.content(t, "ann", f.ID); got != "a,b\n1,2\n" {
		t.Fatalf("content %q", got)
	}
	if err := b.Delete(t.Context(), "ann", f.ID); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.Delete(t.Context(), "ann", f.ID), proto.NotFound)
	_, err := b.Get(t.Context(), "ann", f.ID)
	wantCode(t, err, proto.NotFound)
	if left := append(b.onDisk(t, "blobs"), b.onDisk(t, "tmp")...); len(left) != 0 || b.Usage("ann") != 0 {
		t.Fatalf("left on disk: %v, usage %d", left, b.Usage("ann"))
	}
}

func TestForeignFilesAreUnknown(t *testing.T) {
	b := newBench(t, Config{})
	f := b.put(t, Upload{}, "secret")
	_, err := b.Get(t.Context(), "eve", f.ID)
	wantCode(t, err, proto.NotFound)
	_, _, err = b.Store.Open(t.Context(), "eve", f.ID)
	wantCode(t, err, proto.NotFound)
	wantCode(t, b.Delete(t.Context(), "eve", f.ID), proto.NotFound)
	for _, q := range []Query{{}, {IDs: []string{f.ID}}, {AfterID: "file_zzzzzzzzzzzzzzzzzzzzzz"}} {
		if page, err := b.List(t.Context(), "eve", q); err != nil || len(page.Files) != 0 {
			t.Fatalf("List(%+v) = %+v, %v", q, page, err)
		}
	}
	for _, id := range []string{"", "file_", "../../etc/passwd", "file_../../../../etc/passw", strings.Repeat("x", 1e6),
		"file_\x00\n\x1b[2J"} {
		_, err := b.Get(t.Context(), "ann", id)
		wantCode(t, err, proto.NotFound)
		if len(err.Error()) > 300 {
			t.Errorf("the message repeats %d bytes", len(err.Error()))
		}
	}
	if b.content(t, "ann", f.ID) != "secret" {
		t.Fatal("content changed")
	}
}

func TestContentIsStoredOnce(t *testing.T) {
	b := newBench(t, Config{})
	one, two := b.put(t, Upload{}, "same"), b.put(t, Upload{Owner: "bob"}, "same")
	if got := b.onDisk(t, "blobs"); len(got) != 1 {
		t.Fatalf("contents on disk: %v", got)
	}
	if err := b.Delete(t.Context(), "ann", one.ID); err != nil {
		t.Fatal(err)
	}
	if b.content(t, "bob", two.ID) != "same" || b.Usage("ann") != 0 || b.Usage("bob") != 4 {
		t.Fatal("deleting one of two files took the other's content or account")
	}
	if err := b.Delete(t.Context(), "bob", two.ID); err != nil || len(b.onDisk(t, "blobs")) != 0 {
		t.Fatalf("content outlived its last file: %v", err)
	}
}

// TestPutAndDeleteOfOneContentRace runs puts and deletes of one content in parallel. Every file that exists must have
// its content.
func TestPutAndDeleteOfOneContentRace(t *testing.T) {
	b := newBench(t, Config{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				f, err := b.Put(context.Background(), Upload{Owner: "ann"}, strings.NewReader("contested"))
				if err != nil {
					t.Error(err)
					return
				}
				r, _, err := b.Store.Open(context.Background(), "ann", f.ID)
				if err != nil {
					t.Error(err)
					return
				}
				r.Close()
				if err := b.Delete(context.Background(), "ann", f.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if left := append(b.onDisk(t, "blobs"), b.onDisk(t, "tmp")...); len(left) != 0 || b.Usage("ann") != 0 {
		t.Fatalf("left: %v, usage %d", left, b.Usage("ann"))
	}
}

func TestDeleteDuringDownload(t *testing.T) {
	b := newBench(t, Config{})
	content := strings.Repeat("0123456789abcdef", 1<<16)
	f := b.put(t, Upload{}, content)
	r, _, err := b.Store.Open(t.Context(), "ann", f.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := make([]byte, 1000)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), "ann", f.ID); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil || string(first)+string(rest) != content {
		t.Fatalf("the download broke: %v, %d bytes", err, len(rest))
	}
}

func TestLimitsApplyWhileReading(t *testing.T) {
	b := newBench(t, Config{MaxFileBytes: 1 << 20, QuotaBytes: 3 << 19})
	_, err := b.Put(t.Context(), Upload{Owner: "ann"}, neverEnds{})
	wantCode(t, err, proto.TooLarge)
	b.put(t, Upload{}, strings.Repeat("x", 1<<20))
	_, err = b.Put(t.Context(), Upload{Owner: "ann"}, neverEnds{})
	wantCode(t, err, proto.QuotaExceeded)
	if b.Usage("ann") != 1<<20 || len(b.onDisk(t, "tmp")) != 0 {
		t.Fatalf("refused uploads left %d bytes and %v", b.Usage("ann"), b.onDisk(t, "tmp"))
	}
	b.put(t, Upload{Owner: "bob"}, "another owner has a quota of its own")
}

// A neverEnds reader has no end.
type neverEnds struct{}

func (neverEnds) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestQuotaHoldsForParallelUploads(t *testing.T) {
	b := newBench(t, Config{QuotaBytes: 100_000})
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := 0
	for i := range 20 {
		wg.Go(func() {
			_, err := b.Put(context.Background(), Upload{Owner: "ann"}, strings.NewReader(
				strings.Repeat(fmt.Sprint(i%10), 10_000)+fmt.Sprint(i)))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				stored++
			} else if proto.CodeOf(err) != proto.QuotaExceeded {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if stored == 0 || stored > 9 || b.Usage("ann") > 100_000 {
		t.Fatalf("%d files, %d bytes within a quota of 100000", stored, b.Usage("ann"))
	}
}

func TestBrokenUploadLeavesNothing(t *testing.T) {
	b := newBench(t, Config{})
	broken := errors.New("connection reset")
	_, err := b.Put(t.Context(), Upload{Owner: "ann"}, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(
		broken)))
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Put(ctx, Upload{Owner: "ann"}, strings.NewReader("x"))
	wantCode(t, err, proto.Canceled)
	st, err := b.Stage(t.Context(), Upload{Owner: "ann"}, strings.NewReader("staged"))
	if err != nil || b.Usage("ann") != 6 {
		t.Fatalf("staged: %v, usage %d", err, b.Usage("ann"))
	}
	st.ExpireIn(time.Second)
	_, err = st.Commit(t.Context())
	wantCode(t, err, proto.InvalidArgument)
	st.Close()
	st.Close()
	if left := append(b.onDisk(t, "blobs"), b.onDisk(t, "tmp")...); len(left) != 0 || b.Usage("ann") != 0 {
		t.Fatalf("left: %v, usage %d", left, b.Usage("ann"))
	}
}

// TestFullDiskEndsAnUpload checks that an endless upload ends when the disk is full.
func TestFullDiskEndsAnUpload(t *testing.T) {
	b := newBench(t, Config{})
	disk := filepath.Join(b.cfg.Dir, "tmp")
	needs.Root(t)
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("this test mounts a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	var came counter
	_, err := b.Put(t.Context(), Upload{Owner: "ann"}, io.TeeReader(neverEnds{}, &came))
	wantCode(t, err, proto.Unavailable)
	if came > 64<<20 {
		t.Errorf("%d bytes were read for a disk of 4 MiB", came)
	}
	if left := b.onDisk(t, "tmp"); len(left) != 0 || b.Usage("ann") != 0 {
		t.Fatalf("left: %v, usage %d", left, b.Usage("ann"))
	}
}

// A counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// TestBlocksStayInOrder checks that the stored content equals the upload, although several goroutines write and hash
// blocks.
func TestBlocksStayInOrder(t *testing.T) {
	const blockBytes, blocks = 256 << 10, 6 // as in package intake
	b := newBench(t, Config{})
	content := make([]byte, 5*blocks*blockBytes/2+1)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // never fails
	for _, size := range []int{blockBytes - 1, blockBytes, blockBytes + 1, 2 * blockBytes, len(content)} {
		f, err := b.Put(t.Context(), Upload{Owner: "ann"}, iotest.HalfReader(bytes.NewReader(content[:size])))
		if err != nil || f.SizeBytes != int64(size) {
			t.Fatalf("%d bytes: %d, %v", size, f.SizeBytes, err)
		}
		sum := sha256.Sum256(content[:size])
		if got := b.content(t, "ann", f.ID); got != string(content[:size]) ||
			!slices.Contains(b.onDisk(t, "blobs"), hex.EncodeToString(sum[:])) {
			t.Errorf("%d bytes came back as %d others, or under another hash", size, len(got))
		}
	}
	broken := errors.New("connection reset")
	_, err := b.Put(t.Context(), Upload{Owner: "bob"}, io.MultiReader(bytes.NewReader(content), iotest.ErrReader(
		broken)))
	if !errors.Is(err, broken) || b.Usage("bob") != 0 || len(b.onDisk(t, "tmp")) != 0 {
		t.Errorf("broken off after many blocks: %v, %d bytes and %v are left", err, b.Usage("bob"), b.onDisk(t, "tmp"))
	}
}

func TestExpiry(t *testing.T) {
	b := newBench(t, Config{})
	start := b.now
	f := b.put(t, Upload{ExpiresIn: time.Hour}, "short lived")
	keep := b.put(t, Upload{}, "kept")
	if f.ExpiresAt == nil || !f.ExpiresAt.Equal(start.Add(time.Hour)) {
		t.Fatalf("expires at %v", f.ExpiresAt)
	}
	steps := []struct {
		after   time.Duration
		swept   Swept
		content proto.Code // of Open
		record  proto.Code // of Get
		listed  int
	}{
		{time.Hour - time.Microsecond, Swept{}, "", "", 2},
		{time.Hour, Swept{Expired: 1, FreedBytes: 11}, proto.Expired, "", 2},
		{time.Hour + 30*24*time.Hour - time.Microsecond, Swept{}, proto.Expired, "", 2},
		{time.Hour + 30*24*time.Hour, Swept{Forgotten: 1}, proto.NotFound, proto.NotFound, 1},
	}
	for _, step := range steps {
		b.now = start.Add(step.after)
		if _, _, err := b.Store.Open(t.Context(), "ann", f.ID); step.content == proto.Expired {
			wantCode(t, err, proto.Expired) // even before the sweep
		}
		swept, err := b.Sweep(t.Context(), b.now)
		if err != nil || swept != step.swept {
			t.Fatalf("after %v: swept %+v, %v; want %+v", step.after, swept, err, step.swept)
		}
		r, _, err := b.Store.Open(t.Context(), "ann", f.ID)
		if wantCode(t, err, step.content); err == nil {
			r.Close()
		}
		_, err = b.Get(t.Context(), "ann", f.ID)
		wantCode(t, err, step.record)
		if page, _ := b.List(t.Context(), "ann", Query{}); len(page.Files) != step.listed {
			t.Fatalf("after %v: %d listed", step.after, len(page.Files))
		}
	}
	if b.content(t, "ann", keep.ID) != "kept" || b.Usage("ann") != 4 {
		t.Fatal("the sweep took a file without expiry")
	}
}

func TestExpiredFileCanBeDeleted(t *testing.T) {
	b := newBench(t, Config{})
	f, twin := b.put(t, Upload{ExpiresIn: time.Hour}, "shared"), b.put(t, Upload{}, "shared")
	b.now = b.now.Add(2 * time.Hour)
	if swept, err := b.Sweep(t.Context(), b.now); err != nil || swept != (Swept{Expired: 1}) {
		t.Fatalf("%+v, %v", swept, err)
	}
	if err := b.Delete(t.Context(), "ann", f.ID); err != nil {
		t.Fatal(err)
	}
	if b.content(t, "ann", twin.ID) != "shared" || b.Usage("ann") != 6 {
		t.Fatal("deleting an expired file took a content that another file has")
	}
	if swept, err := b.Sweep(t.Context(), b.now.Add(365*24*time.Hour)); err != nil || swept != (Swept{}) {
		t.Fatalf("a deleted file is still due: %+v, %v", swept, err)
	}
}

func TestList(t *testing.T) {
	b := newBench(t, Config{})
	var ids []string // newest first
	for i := range 7 {
		f := b.put(t, Upload{Scope: []string{"", "container_1"}[i%2]}, fmt.Sprint(i))
		ids = append([]string{f.ID}, ids...)
	}
	b.put(t, Upload{Owner: "bob"}, "not ann's")
	b.put(t, Upload{Owner: "anna"}, "not ann's")
	tests := []struct {
		name string
		q    Query
		want []string
		more bool
	}{
		{"all", Query{}, ids, false},
		{"first", Query{Limit: 3}, ids[:3], true},
		{"exactly all", Query{Limit: 7}, ids, false},
		{"after", Query{Limit: 3, AfterID: ids[2]}, ids[3:6], true},
		{"after, last", Query{Limit: 3, AfterID: ids[5]}, ids[6:], false},
		{"after the last", Query{AfterID: ids[6]}, nil, false},
		{"before", Query{Limit: 2, BeforeID: ids[4]}, ids[2:4], true},
		{"before, first", Query{Limit: 4, BeforeID: ids[3]}, ids[:3], false},
		{"before the first", Query{BeforeID: ids[0]}, nil, false},
		{"scope", Query{Scope: "container_1"}, []string{ids[1], ids[3], ids[5]}, false},
		{"scope, page", Query{Scope: "container_1", Limit: 1, AfterID: ids[1]}, []string{ids[3]}, true},
		{"ids", Query{IDs: []string{ids[5], ids[1], ids[5], "file_0000000000000000000000", "nonsense"}},
			[]string{ids[1], ids[5]}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			page, err := b.List(t.Context(), "ann", tt.q)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, f := range page.Files {
				got = append(got, f.ID)
			}
			if strings.Join(got, " ") != strings.Join(tt.want, " ") || page.More != tt.more || page.Files == nil {
				t.Fatalf("got %v, more %v\nwant %v, more %v", got, page.More, tt.want, tt.more)
			}
		})
	}
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprintf("file_%022d", i)
	}
	for _, q := range []Query{{Limit: -1}, {Limit: 1001}, {AfterID: "x"}, {BeforeID: "page_1"},
		{AfterID: ids[0], BeforeID: ids[1]},
		{IDs: ids, Limit: 1}, {IDs: ids, AfterID: ids[0]}, {IDs: many}} {
		_, err := b.List(t.Context(), "ann", q)
		wantCode(t, err, proto.InvalidArgument)
	}
}

func TestEmptyFile(t *testing.T) {
	b := newBench(t, Config{})
	b.put(t, Upload{}, "more than is allowed from now on")
	b.account.limit = 1
	f := b.put(t, Upload{Filename: "empty.txt"}, "")
	if f.SizeBytes != 0 || b.content(t, "ann", f.ID) != "" {
		t.Fatalf("%+v", f)
	}
}

func TestCloseWaitsAndRefuses(t *testing.T) {
	b := newBench(t, Config{})
	st, err := b.Stage(t.Context(), Upload{Owner: "ann"}, bytes.NewReader([]byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { b.Store.Close(); close(closed) }()
	for b.begin() == nil { // until Close has begun
		b.active.Done()
	}
	select {
	case <-closed:
		t.Fatal("Close did not wait for the upload")
	default:
	}
	if _, err := st.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-closed
	_, err = b.Put(t.Context(), Upload{Owner: "ann"}, strings.NewReader("late"))
	wantCode(t, err, proto.Unavailable)
}
