package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const ownMounts = "/proc/thread-self/ns/mnt"

// otherMounts is a mount namespace that nobody is in.
func otherMounts(t *testing.T) (ns *os.File) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go offMain(func() {
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

// TestVisits: many that come at once are each done in their own namespace, one that cannot be goes to whoever asked for it, and after the last the thread is at home.
func TestVisits(t *testing.T) {
	var v visitor
	defer v.close()
	home, err := os.Readlink(ownMounts)
	if err != nil {
		t.Fatal(err)
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
	for i := range 3 * waitingTrips {
		ns := namespaces[i%len(namespaces)]
		wg.Go(func() {
			var want, is unix.Stat_t
			err := v.visit(ns, func() error {
				return errors.Join(refused, unix.Fstat(int(ns.Fd()), &want), unix.Stat(ownMounts, &is))
			})
			if !errors.Is(err, refused) || is.Ino != want.Ino || is.Ino == 0 {
				t.Errorf("a visit of %d was in %d: %v", want.Ino, is.Ino, err)
			}
		})
		if i%10 == 0 {
			wg.Go(func() {
				if err := v.visit(noNamespace, func() error { return nil }); !errors.Is(err, unix.EINVAL) {
					t.Errorf("a visit of what is no namespace: %v", err)
				}
			})
		}
	}
	wg.Wait()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // it comes back after the last has its answer, which nobody is told
		away := abroad(t, home)
		if away == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a thread has not come back: " + away)
		}
	}
}

// abroad names a thread of ours that is in another mount namespace than home.
func abroad(t *testing.T, home string) string {
	t.Helper()
	links, err := filepath.Glob("/proc/self/task/*/ns/mnt")
	if err != nil || len(links) == 0 {
		t.Fatal("no threads", err)
	}
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && at != home {
			return fmt.Sprintf("%s is %s", link, at)
		}
	}
	return ""
}
