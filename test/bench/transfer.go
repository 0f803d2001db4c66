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

	"berth/cli/pack"
	"berth/cli/unpack"
	"berth/client"
	"berth/proto"
)

// sharedMemory is the source and destination of transfers, so that the client's disk has no influence.
const sharedMemory = "/dev/shm"

// megabytes returns the size of a large transfer.
func (b *bench) megabytes() int {
	if b.Quick {
		return 16
	}
	return 1024
}

// A transfer is the common part of rows about files: one file, or a directory of many files.
type transfer struct {
	*daemon
	files  int    // 1: source is the file itself
	bytes  int    // of each file
	source string // in memory
	sink   string // destination in memory
	disk   string // destination on the file system of the daemon's data
	kept   string // copy there that is read; keep creates it
	stored string // file ID in the Files API
	box    string // container ID
	close  func()
}

// transfer creates incompressible files, and a daemon that accepts one of the largest size.
func (b *bench) transfer(ctx context.Context, files, bytes int) (_ *transfer, err error) {
	d, err := b.daemon(ctx, "--max-file-bytes", strconv.Itoa(2*b.megabytes()<<20))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(sharedMemory, fmt.Sprintf("berth-bench-%d-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	t := &transfer{daemon: d, files: files, bytes: bytes, source: filepath.Join(dir, "source"), sink: filepath.Join(
		dir, "sink"), disk: filepath.Join(b.tmp, "copy"), kept: filepath.Join(b.tmp, "kept")}
	t.close = func() {
		if t.box != "" {
			_ = d.remove(ctx, t.box) // otherwise its lifetime ends it
		}
		if t.stored != "" {
			_ = d.DeleteFile(context.WithoutCancel(ctx), t.stored) // if this fails, the file stays listed
		}
		// in memory and in the bench's directory
		_ = errors.Join(os.RemoveAll(dir), os.RemoveAll(t.disk), os.RemoveAll(t.kept))
	}
	if err = t.fill(); err == nil {
		t.box, err = d.create(ctx, proto.CreateContainer{})
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// perDirectory is the number of files in one directory.
const perDirectory = 100

// fill creates the source with new content each time, because the daemon stores equal content once.
func (t *transfer) fill() error {
	random := rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%032d", os.Getpid()))))
	if t.files == 1 {
		return fillFile(t.source, random, t.bytes)
	}
	for i := range t.files {
		dir := filepath.Join(t.source, strconv.Itoa(i/perDirectory))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := fillFile(filepath.Join(dir, strconv.Itoa(i%perDirectory)), random, t.bytes); err != nil {
			return err
		}
	}
	return nil
}

// fillFile creates a file from the next bytes of r.
func fillFile(name string, r io.Reader, bytes int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, r, int64(bytes))
	return errors.Join(err, f.Close())
}

// Paths in a container, of ours or of a comparator: the copy that is written, the copy that is read, and the source
// in memory for floors that run inside.
const (
	inside       = "/workspace/copy"
	keptInside   = "/workspace/kept"
	sourceInside = "/tmp/source"
	otherCopy    = "/tmp/copy"
)

// keep creates the copies that are read: one on disk, one in the container, and for a single file one in the Files
// API.
func (t *transfer) keep(ctx context.Context) error {
	if err := command(ctx, "cp", "-r", t.source, t.kept); err != nil {
		return err
	}
	if err := t.put(ctx, keptInside); err != nil || t.files > 1 {
		return err
	}
	f, err := t.store(ctx)
	t.stored = f.ID
	return err
}

// whole returns a shell command that fails unless all files are at path with the right size.
func (t *transfer) whole(path string) string {
	return fmt.Sprintf(
		`n=$(find %q -type f -size %dc | wc -l); [ "$n" = %d ] || { echo "$n of %d files came whole" >&2; exit 1; }`,
		path, t.bytes, t.files, t.files)
}

// taken is whole, and also removes the files in any case.
func (t *transfer) taken(path string) string {
	return fmt.Sprintf("trap 'rm -rf %s' EXIT; %s", path, t.whole(path))
}

// even gives all turns the same start. It writes all dirty pages to disk, since the writes would compete with the
// turn. It also touches free memory. A virtual machine may return memory to its host a few seconds after it is freed,
// and gets each page back on the next write. That halves the speed of a copy, except for a turn that has just removed
// a file of the same size.
func (t *transfer) even(turns []*turn) []*turn {
	for _, turn := range turns {
		op := turn.op
		turn.op = func(ctx context.Context) (float64, error) {
			unix.Sync()
			if err := touch(min(3*t.files*t.bytes, int(memory("MemAvailable"))<<10/2)); err != nil {
				return 0, err
			}
			return op(ctx)
		}
	}
	return turns
}

// touch allocates memory, writes to each page, and frees it.
func touch(bytes int) error {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	return unix.Munmap(b)
}

// unit returns the unit of a transfer's speed: files per second for many files.
func (t *transfer) unit() string {
	if t.files > 1 {
		return "1/s"
	}
	return "MiB/s"
}

// speed runs do and returns the transfer's speed.
func (t *transfer) speed(do func() error) (float64, error) {
	amount := float64(t.files)
	if t.files == 1 {
		amount = float64(t.bytes) / (1 << 20)
	}
	took, err := timed(do)
	return amount / took * 1000, err
}

// floor returns a turn that copies with a program of the machine.
func (t *transfer) floor(name, to, program string, args ...string) *turn {
	return &turn{name: name, role: Floor, unit: t.unit(), op: func(ctx context.Context) (float64, error) {
		_ = os.RemoveAll(to) // each copy writes a new file
		return t.speed(func() error { return command(ctx, program, args...) })
	}, after: func(ctx context.Context) error { return command(ctx, "sh", "-c", t.whole(to)) }}
}

// dd returns the floor for one file.
func (t *transfer) dd(name, from, to string, more ...string) *turn {
	return t.floor(name, to, "dd", append([]string{"if=" + from, "of=" + to, "bs=1M", "status=none"}, more...)...)
}

// floorInside returns a floor in the container, on the file system of its files.
func (t *transfer) floorInside(name, line string) *turn {
	return &turn{name: name, role: Floor, unit: t.unit(), op: func(ctx context.Context) (float64, error) {
		return t.speed(func() error { return t.bash(ctx, t.box, line) })
	}, after: func(ctx context.Context) error { return t.bash(ctx, t.box, t.taken(inside)) }}
}

// Names of our turns.
const (
	intoContainer  = "into a container"
	outOfContainer = "out of a container"
)

// put writes the source into the container. It writes a directory as `berth cp` does.
func (t *transfer) put(ctx context.Context, path string) error {
	box := t.FS(t.box, proto.UserDefault)
	if t.files > 1 {
		return pack.Stream(t.source, func(string, pack.Reason) {}, func(r io.Reader) error {
			return box.Untar(ctx, path, r)
		})
	}
	f, err := os.Open(t.source)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = box.Write(ctx, path, 0, f, int64(t.bytes))
	return err
}

// writing returns a turn that puts the source into the container.
func (t *transfer) writing() *turn {
	return &turn{name: intoContainer, role: Ours, unit: t.unit(), op: func(ctx context.Context) (float64, error) {
		return t.speed(func() error { return t.put(ctx, inside) })
	}, after: func(ctx context.Context) error { return t.bash(ctx, t.box, t.taken(inside)) }}
}

// get copies from the container to the sink. It copies a directory as `berth cp` does.
func (t *transfer) get(ctx context.Context) error {
	box := t.FS(t.box, proto.UserDefault)
	if t.files == 1 {
		return t.receive(box.Read(ctx, keptInside))
	}
	in, err := box.Tar(ctx, keptInside)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.Mkdir(t.sink, 0o755); err != nil {
		return err
	}
	return unpack.Tar(t.sink, in, func(proto.ArchiveNote, string) {})
}

// reading returns a turn that copies out of the container.
func (t *transfer) reading() *turn { return t.sinking(outOfContainer, t.get) }

// sinking returns a turn of ours that fills the sink.
func (t *transfer) sinking(name string, do func(context.Context) error) *turn {
	return &turn{name: name, role: Ours, unit: t.unit(), op: func(ctx context.Context) (float64, error) {
		_ = os.RemoveAll(t.sink) // as the floor does
		return t.speed(func() error { return do(ctx) })
	}, after: func(ctx context.Context) error { return command(ctx, "sh", "-c", t.whole(t.sink)) }}
}

// receive copies a download to the sink.
func (t *transfer) receive(in *client.Download, err error) error {
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(t.sink)
	if err != nil {
		return err
	}
	// the file's own ReadFrom uses a small buffer
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, in, make([]byte, 1<<20))
	return errors.Join(err, out.Close())
}

// store uploads the file to the Files API.
func (t *transfer) store(ctx context.Context) (client.File, error) {
	f, err := os.Open(t.source)
	if err != nil {
		return client.File{}, err
	}
	defer f.Close()
	return t.UploadFile(ctx, client.Upload{Name: "b", Body: f, Size: int64(t.bytes)})
}

// storing returns a turn that stores the file.
func (t *transfer) storing(name string) *turn {
	var stored client.File
	n := byte(0)
	return &turn{name: name, role: Ours, unit: t.unit(), before: func(context.Context) error {
		n++ // equal content would be stored once
		return t.mark(n)
	}, op: func(ctx context.Context) (float64, error) {
		return t.speed(func() (err error) {
			stored, err = t.store(ctx)
			return err
		})
	}, after: func(ctx context.Context) error {
		if stored.SizeBytes != int64(t.bytes) {
			return fmt.Errorf("stored %d bytes", stored.SizeBytes)
		}
		return t.DeleteFile(ctx, stored.ID)
	}}
}

// mark changes the content of the file.
func (t *transfer) mark(n byte) error {
	f, err := os.OpenFile(t.source, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{n}, 0)
	return errors.Join(err, f.Close())
}

// loading returns a turn that reads the stored file.
func (t *transfer) loading(name string) *turn {
	return t.sinking(name, func(ctx context.Context) error { return t.receive(t.FileContent(ctx, t.stored)) })
}

// sending returns a turn that copies the source into a comparator's container.
func (t *transfer) sending(c *comparator, name string, every int) *turn {
	var id string
	return &turn{name: name, role: Comparator, unit: t.unit(), every: every, before: func(ctx context.Context) (
		err error) {
		id, err = c.container(ctx)
		return err
	}, op: func(ctx context.Context) (float64, error) {
		return t.speed(func() error { return c.do(ctx, c.send(id, t.source, otherCopy)) })
	}, after: func(ctx context.Context) error { return c.do(ctx, c.exec(id, "bash", "-c", t.taken(otherCopy))) }}
}

// fetching returns a turn that copies out of a comparator's container what was copied there before.
func (t *transfer) fetching(c *comparator, name string, every int) *turn {
	var id string
	return &turn{name: name, role: Comparator, unit: t.unit(), every: every, before: func(ctx context.Context) (
		err error) {
		if id, err = c.container(ctx); err != nil {
			return err
		}
		return c.do(ctx, c.send(id, t.source, otherCopy))
	}, op: func(ctx context.Context) (float64, error) {
		_ = os.RemoveAll(t.sink) // as the floor does
		return t.speed(func() error { return c.do(ctx, c.fetch(id, otherCopy, t.sink)) })
	}, after: func(ctx context.Context) error {
		return errors.Join(command(ctx, "sh", "-c", t.whole(t.sink)), c.do(ctx, c.exec(id, "rm", "-rf", otherCopy)))
	}}
}
