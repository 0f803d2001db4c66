package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The name server is written where programs would find none, and other lines stay.
func TestNameServer(t *testing.T) {
	const ours = "nameserver 198.19.255.253\n"
	for _, c := range []struct{ had, want string }{
		{"", ours},
		{"search example.com\noptions ndots:2\n", ours + "search example.com\noptions ndots:2\n"},
		{"nameserver 127.0.0.11\nnameserver ::1\nsearch a\n", ours + "search a\n"},
		{"nameserver 127.0.0.1\nnameserver 10.0.0.1\n", "nameserver 127.0.0.1\nnameserver 10.0.0.1\n"},
		{"nameserver 8.8.8.8", "nameserver 8.8.8.8"},
		{ours, ours},
	} {
		root := t.TempDir()
		path := filepath.Join(root, resolverFile)
		if err := nameServer(root, "198.19.255.253"); err != nil { // an image without /etc
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.had), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := nameServer(root, "198.19.255.253"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != c.want {
			t.Errorf("%q became %q, %v, want %q", c.had, got, err, c.want)
		}
	}
	root := t.TempDir() // without a file, and with a link that leads elsewhere
	path := filepath.Join(root, resolverFile)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := nameServer(root, "198.19.255.253"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != ours {
		t.Errorf("no file became %q, %v", got, err)
	}
	if err := os.Rename(path, path+".other"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".other", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".other", path); err != nil {
		t.Fatal(err)
	}
	if err := nameServer(root, "198.19.255.253"); err != nil {
		t.Errorf("behind a link: %v", err)
	}
	if got, err := os.ReadFile(path + ".other"); err != nil || len(got) > 0 {
		t.Errorf("behind a link there is %q, %v", got, err)
	}
}
