package mountns

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const ownMounts = "/proc/thread-self/ns/mnt"

// otherMounts returns a new mount namespace without processes.
func otherMounts(t *testing.T) (ns *os.File) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go OffMain(func() {
		defer close(done)
		if err = unix.Unshare(unix.CLONE_NEWNS); err == nil {
			ns, err = os.Open(ownMounts)
		}
	})
	<-done
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// TestVisits checks that parallel visits each run in their own namespace, that a failed visit returns its error to
// its caller, and that all threads are home afterwards.
func TestVisits(t *testing.T) {
	places := []string{"ns/mnt", "root", "cwd"} // the last differs from the root, where a thread enters a namespace
	var at [3]string
	for i, place := range places {
		var err error
		if at[i], err = os.Readlink("/proc/self/" + place); err != nil {
			t.Fatal(err)
		}
	}
	noNamespace, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer noNamespace.Close()
	refused := errors.New("refused")
	namespaces := make([]*os.File, 8)
	for i := range namespaces {
		namespaces[i] = otherMounts(t)
	}
	var wg sync.WaitGroup
	for i := range 200 {
		ns := namespaces[i%len(namespaces)]
		wg.Go(func() {
			var want, is unix.Stat_t
			err := Visit(ns, func() error {
				return errors.Join(refused, unix.Fstat(int(ns.Fd()), &want), unix.Stat(ownMounts, &is))
			})
			if !errors.Is(err, refused) || is.Ino != want.Ino || is.Ino == 0 {
				t.Errorf("a visit of %d was in %d: %v", want.Ino, is.Ino, err)
			}
		})
		if i%10 == 0 {
			wg.Go(func() {
				if err := Visit(noNamespace, func() error { return nil }); !errors.Is(err, unix.EINVAL) {
					t.Errorf("a visit of what is no namespace: %v", err)
				}
			})
		}
	}
	wg.Wait()
	for i, place := range places {
		links, err := filepath.Glob("/proc/self/task/*/" + place)
		if err != nil || len(links) == 0 {
			t.Fatal("no threads", err)
		}
		for _, link := range links {
			if is, err := os.Readlink(link); err == nil && is != at[i] {
				t.Errorf("%s is %s, and was %s", link, is, at[i])
			}
		}
	}
}
