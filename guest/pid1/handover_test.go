package pid1

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"berth/guest/client"
	"berth/proto"
)

// greeted returns a guest after Hello. The client then knows before the first command that descriptors can be passed.
func greeted(t *testing.T) *world {
	w := newWorld(t, false)
	_, err := w.Hello(short(t))
	must(t, err)
	return w
}

// TestHandover checks that reads of large parts, sent as descriptors, and of small parts, sent as frames, return the
// same bytes.
func TestHandover(t *testing.T) {
	checkLeaks(t)
	w := greeted(t)
	big := make([]byte, 1<<20+7)
	_, _ = rand.Read(big)
	w.put("big", string(big))
	size := int64(len(big))
	for _, c := range []struct {
		off, n, from, to int64
		handed           bool
	}{
		{0, -1, 0, size, true}, {5, handedFrom, 5, 5 + handedFrom, true}, {5, handedFrom - 1, 5,
			4 + handedFrom, false},
		{size - 3, 100, size - 3, size, false}, {size - handedFrom, 1 << 40, size - handedFrom, size, true},
	} {
		for _, copied := range []bool{false, true} {
			r, info, err := w.Read(short(t), "user", "big", c.off, c.n)
			must(t, err)
			if _, is := r.(*client.HandedFile); is != c.handed {
				t.Errorf("%+v: came as %T", c, r)
			}
			var got bytes.Buffer
			if copied {
				_, err = io.Copy(&got, r) // WriteTo
			} else {
				_, err = io.Copy(&got, struct{ io.Reader }{r})
			}
			must(t, err)
			must(t, r.Close())
			must(t, r.Close())
			if !bytes.Equal(got.Bytes(), big[c.from:c.to]) || info.SizeBytes != size {
				t.Errorf("%+v: got %d bytes", c, got.Len())
			}
		}
	}
	must(t, unix.Mkfifo(filepath.Join(w.workspace, "fifo"), 0o666))
	_, _, err := w.Read(short(t), "user", "fifo", 0, -1)
	wantCode(t, err, proto.InvalidArgument)
	must(t, os.WriteFile(filepath.Join(w.workspace, "secret"), big, 0o600))
	_, _, err = w.Read(short(t), "user", "secret", 0, -1)
	wantCode(t, err, proto.PermissionDenied)
	r, _, err := w.ReadNoLinks(short(t), "user", filepath.Join(w.workspace, "big"))
	must(t, err)
	if _, is := r.(*client.HandedFile); !is {
		t.Errorf("without links it came as %T", r)
	}
	must(t, r.Close())
	if open, idle := w.Connections(); open != 1 || idle != 1 {
		t.Errorf("%d open and %d idle; all went over one connection", open, idle)
	}
}

// TestHandoverOfWhatShrinks checks that a read reports an error if the file has become shorter.
func TestHandoverOfWhatShrinks(t *testing.T) {
	checkLeaks(t)
	w := greeted(t)
	for _, read := range []func(r io.Reader) error{
		func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err },
		func(r io.Reader) error { _, err := io.Copy(io.Discard, struct{ io.Reader }{r}); return err },
	} {
		w.put("shrinks", string(make([]byte, handedFrom)))
		r, _, err := w.Read(short(t), "user", "shrinks", 0, -1)
		must(t, err)
		must(t, os.Truncate(filepath.Join(w.workspace, "shrinks"), handedFrom-1))
		wantCode(t, read(r), proto.Conflict)
		must(t, r.Close())
	}
}

// TestHandoverEnds checks that a read ends with its client and with its caller.
func TestHandoverEnds(t *testing.T) {
	checkLeaks(t)
	w := greeted(t)
	w.put("big", string(make([]byte, handedFrom)))
	ctx, cancel := context.WithCancel(short(t))
	canceled, _, err := w.Read(ctx, "user", "big", 0, -1)
	must(t, err)
	r, _, err := w.Read(short(t), "user", "big", 0, -1)
	must(t, err)
	var b [1]byte
	_, err = io.ReadFull(canceled, b[:])
	must(t, err)
	cancel()
	if _, err = io.Copy(io.Discard, canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("after its caller had gone: %v", err)
	}
	must(t, canceled.Close())
	_, err = io.ReadFull(r, b[:])
	must(t, err)
	must(t, w.Close())
	_, err = r.Read(b[:])
	wantCode(t, err, proto.Unavailable)
	_, err = io.Copy(io.Discard, r)
	wantCode(t, err, proto.Unavailable)
	must(t, r.Close())
}

// handedFrom is the size in bytes from which the guest sends a file as a descriptor.
const handedFrom = 128 << 10
