// Package needs says what a test needs of its machine. Where that is missing, `make test` fails, since a skipped test
// looks like one that passed, and `make quick` (go test -short) leaves the test out.
package needs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Root is for tests that act as several users, mount or make namespaces. The root of a user namespace that maps the
// IDs 0 to 1000 is enough. With -short these tests are left out, also for root, so that every user runs the same ones.
func Root(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short: this test needs root")
	}
	if err := root(); err != nil {
		t.Fatal(err)
	}
}

func root() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("this test needs root")
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	var inside, outside, count int64
	if _, err := fmt.Sscan(string(ids), &inside, &outside, &count); err != nil {
		return fmt.Errorf("/proc/self/uid_map: %w", err)
	}
	if inside != 0 || count <= 1000 {
		return fmt.Errorf("this test needs the user IDs 0 to 1000, and /proc/self/uid_map has %q",
			strings.TrimSpace(string(ids)))
	}
	return nil
}

// Containers is for tests that run the daemon that make built, with real containers. It gives the directory of the
// programs and the archive of the base image. With -short these tests are always left out.
func Containers(t testing.TB) (bin, image string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short: this test runs real containers")
	}
	bin, image, err := Built()
	if err != nil {
		t.Fatal(err)
	}
	return bin, image
}

// Built gives the directory of the programs and the archive of the base image that `make test` made.
func Built() (bin, image string, err error) {
	bin, image = os.Getenv("BERTH_BIN"), os.Getenv("BERTH_BASE_IMAGE")
	if bin == "" || image == "" {
		return "", "", fmt.Errorf("BERTH_BIN and BERTH_BASE_IMAGE are not set; run these tests with `make test`")
	}
	return filepath.Clean(bin), image, nil
}

// Main is for the TestMain of a package whose tests all need real root or containers. With -short it ends the process
// with success, and says what was left out. what names what the tests do, such as "make containers".
func Main(what string) {
	flag.Parse()
	if testing.Short() {
		fmt.Printf("left out with -short: these tests %s\n", what)
		os.Exit(0)
	}
	if os.Geteuid() != 0 {
		fmt.Fprintf(os.Stderr, "these tests %s and need root\n", what)
		os.Exit(1)
	}
}

// Time is for tests that take more than two seconds. With -short they are left out.
func Time(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short: this test takes more than two seconds")
	}
}
