package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	resolverFile   = "etc/resolv.conf"
	maxResolverLen = 64 << 10 // bytes of an image's file that are read
)

// nameServer lets programs find the container's name server: it writes the address into the resolver's configuration,
// unless that names another server beyond loopback, or is no plain file. Without a file the C library asks loopback.
func nameServer(root, address string) error {
	path := filepath.Join(root, resolverFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) { // an image without /etc, or a link
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() > maxResolverLen {
		return err
	}
	old, err := io.ReadAll(io.LimitReader(f, maxResolverLen))
	if err != nil {
		return err
	}
	kept := fmt.Sprintf("nameserver %s\n", address)
	for line := range strings.Lines(string(old)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			kept += line
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil && !a.IsLoopback() {
			return nil
		}
	}
	if _, err := f.WriteAt([]byte(kept), 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(kept)))
}
