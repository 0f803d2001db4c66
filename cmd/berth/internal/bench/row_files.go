package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"berth/cmd/berth/internal/client"
	"berth/proto"
)

// shared memory is where transfers come from and go to, so that the client's own disk takes no part.
const sharedMemory = "/dev/shm"

// megabytes of a transfer.
func (b *bench) megabytes() int {
	if b.Quick {
		return 16
	}
	return 1024
}

// A transfer is what the rows about files share.
type transfer struct {
	*daemon
	mib    int
	source string // the file, in memory
	sink   string // where copies go, in memory
	disk   string // where copies go beside the daemon's data
	box    string // a container
	close  func()
}

// transfer makes a file that does not compress, and a daemon that takes one as large.
func (b *bench) transfer(ctx context.Context) (_ *transfer, err error) {
	d, err := b.daemon(ctx, "--max-file-bytes", strconv.Itoa(2*b.megabytes()<<20))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(sharedMemory, "berth-bench-")
	if err != nil {
		return nil, err
	}
	t := &transfer{daemon: d, mib: b.megabytes(), source: filepath.Join(dir, "source"), sink: filepath.Join(dir, "sink"), disk: filepath.Join(b.tmp, "copy")}
	t.close = func() {
		if t.box != "" {
			_ = d.remove(ctx, t.box) // its lifetime ends it
		}
		_ = errors.Join(os.RemoveAll(dir), os.RemoveAll(t.disk)) // memory, and the bench's own directory
	}
	f, err := os.Create(t.source)
	if err == nil {
		// Different each time: the daemon keeps equal contents once.
		seed := [32]byte([]byte(fmt.Sprintf("%032d", os.Getpid())))
		_, err = io.CopyN(f, rand.NewChaCha8(seed), int64(t.mib)<<20)
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		t.box, err = d.create(ctx, proto.CreateContainer{})
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// dd is the floor: a copy by the machine's own program.
func (t *transfer) dd(name, from, to string, more ...string) *turn {
	return &turn{name: name, role: Floor, unit: "MiB/s", op: func(ctx context.Context) (float64, error) {
		_ = os.Remove(to) // it is written anew
		return t.speed(func() error {
			return command(ctx, "dd", append([]string{"if=" + from, "of=" + to, "bs=1M", "status=none"}, more...)...)
		})
	}}
}

// even has each turn begin with nothing that is still to be written, which would share the disk with it, and with free memory that the machine has
// touched. A virtual machine may give its host the memory that is free for seconds, and then gets each page of it back when it is written to: a copy is half as
// fast, but for whoever has just removed a file as large.
func (t *transfer) even(turns []*turn) []*turn {
	for _, turn := range turns {
		op := turn.op
		turn.op = func(ctx context.Context) (float64, error) {
			unix.Sync()
			if err := touch(min(3*t.mib<<20, int(memory("MemAvailable"))<<10/2)); err != nil {
				return 0, err
			}
			return op(ctx)
		}
	}
	return turns
}

// touch takes so much memory, each page of it, and gives it back.
func touch(bytes int) error {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	return unix.Munmap(b)
}

// ddInside is dd on the file system that a container's files are on.
const ddInside = "dd in a container"

// speed is how much of the transfer there is in a second.
func (t *transfer) speed(do func() error) (float64, error) {
	took, err := timed(do)
	return float64(t.mib) / took * 1000, err
}

// put writes the file into the container.
func (t *transfer) put(ctx context.Context, path string) error {
	f, err := os.Open(t.source)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = t.FS(t.box, proto.UserDefault).Write(ctx, path, 0, f, int64(t.mib)<<20)
	return err
}

// upload stores a file, and writes one into a container.
func (b *bench) upload(ctx context.Context, res *Result) error {
	t, err := b.transfer(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	// In memory there, too, for the dd that runs there.
	if err := t.put(ctx, "/tmp/source"); err != nil {
		return err
	}
	var stored client.File
	n := byte(0)
	turns := []*turn{
		t.dd("dd and fdatasync", t.source, t.disk, "conv=fdatasync"),
		t.dd("dd", t.source, t.disk),
		{name: "sha256sum", role: Floor, unit: "MiB/s", op: func(ctx context.Context) (float64, error) {
			return t.speed(func() error { return command(ctx, "sha256sum", t.source) })
		}},
		{name: ddInside, role: Floor, unit: "MiB/s", op: func(ctx context.Context) (float64, error) {
			return t.speed(func() error {
				return t.bash(ctx, t.box, "dd if=/tmp/source of=/workspace/dd bs=1M status=none")
			})
		}, after: func(ctx context.Context) error { return t.bash(ctx, t.box, "rm /workspace/dd") }},
		{name: "Files API", role: Ours, unit: "MiB/s", op: func(ctx context.Context) (float64, error) {
			f, err := os.OpenFile(t.source, os.O_RDWR, 0)
			if err != nil {
				return 0, err
			}
			defer f.Close()
			n++ // equal contents would be stored once
			if _, err := f.WriteAt([]byte{n}, 0); err != nil {
				return 0, err
			}
			return t.speed(func() (err error) {
				stored, err = t.UploadFile(ctx, client.Upload{Name: "b", Body: f, Size: int64(t.mib) << 20})
				return err
			})
		}, after: func(ctx context.Context) error {
			if stored.SizeBytes != int64(t.mib)<<20 {
				return fmt.Errorf("stored %d bytes", stored.SizeBytes)
			}
			return t.DeleteFile(ctx, stored.ID)
		}},
		{name: "into a container", role: Ours, unit: "MiB/s", op: func(ctx context.Context) (float64, error) {
			return t.speed(func() error { return t.put(ctx, "/workspace/b") })
		}, after: func(ctx context.Context) error { return t.bash(ctx, t.box, "rm /workspace/b") }},
	}
	if err := b.inTurns(ctx, res, b.rounds(3), t.even(turns)); err != nil {
		return err
	}
	res.against("Files API", atLeast(0.5), "dd and fdatasync")
	res.against("Files API", more, "dd", "sha256sum")
	res.against("into a container", atLeast(0.5), ddInside)
	res.against("into a container", more, "dd")
	res.note("%d MiB that do not compress, from memory. A stored file is hashed and on disk when it is answered, so that SHA-256 is a bound; one in a container is in the page cache of the containers' own file system, as what dd writes there is.", t.mib)
	return nil
}

// download reads a stored file, and one out of a container.
func (b *bench) download(ctx context.Context, res *Result) error {
	t, err := b.transfer(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	f, err := os.Open(t.source)
	if err != nil {
		return err
	}
	defer f.Close()
	stored, err := t.UploadFile(ctx, client.Upload{Name: "b", Body: f, Size: int64(t.mib) << 20})
	if err != nil {
		return err
	}
	defer func() { _ = t.DeleteFile(context.WithoutCancel(ctx), stored.ID) }() // it is listed, should it stay
	if err := t.put(ctx, "/workspace/b"); err != nil {
		return err
	}
	if err := command(ctx, "cp", t.source, t.disk); err != nil {
		return err
	}
	reading := func(name string, open func(context.Context) (*client.Download, error)) *turn {
		return &turn{name: name, role: Ours, unit: "MiB/s", op: func(ctx context.Context) (float64, error) {
			_ = os.Remove(t.sink) // as dd's is
			return t.speed(func() error { return t.fetch(ctx, open) })
		}}
	}
	turns := []*turn{
		t.dd("page-cache copy", t.disk, t.sink),
		reading("Files API", func(ctx context.Context) (*client.Download, error) { return t.FileContent(ctx, stored.ID) }),
		reading("out of a container", func(ctx context.Context) (*client.Download, error) {
			return t.FS(t.box, proto.UserDefault).Read(ctx, "/workspace/b")
		}),
	}
	if err := b.inTurns(ctx, res, b.rounds(4), t.even(turns)); err != nil {
		return err
	}
	res.against("Files API", atLeast(0.5), "page-cache copy")
	res.against("out of a container", atLeast(0.5), "page-cache copy")
	res.note("%d MiB into a file in memory, also the copy, which dd makes of a file in the page cache.", t.mib)
	return nil
}

// fetch copies a download to the sink.
func (t *transfer) fetch(ctx context.Context, open func(context.Context) (*client.Download, error)) error {
	in, err := open(ctx)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(t.sink)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{out}, in, make([]byte, 1<<20)) // the file's own ReadFrom has a small buffer
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if n != int64(t.mib)<<20 {
		return fmt.Errorf("%d bytes came", n)
	}
	return nil
}
