package debian

import (
	"slices"
	"strings"
	"testing"
)

func TestParseStatus(t *testing.T) {
	for _, c := range []struct {
		line        string
		done, total int64
		ok          bool
	}{
		{"dlstatus:3:1.5000:Retrieving file 3 of 270", 3, 270, true},
		{"pmstatus:dpkg:3:Retrieving file 3 of 270", 0, 0, false},
		{"dlstatus:3:1.5000:", 0, 0, false},
		{"dlstatus", 0, 0, false},
	} {
		done, total, ok := parseStatus(c.line)
		if done != c.done && c.ok || total != c.total && c.ok || ok != c.ok {
			t.Errorf("parseStatus(%q) = %d, %d, %t", c.line, done, total, ok)
		}
	}
}

func TestPlanned(t *testing.T) {
	out := "Reading package lists...\nInst bash (5.2.15-2+b2 Debian:12/oldstable [amd64])\n" +
		"Inst python3-numpy (1:1.24.2-1 Debian:12/oldstable [amd64])\nConf bash (5.2.15-2+b2 Debian)\n"
	want := []string{"bash=5.2.15-2+b2", "python3-numpy=1:1.24.2-1"}
	if got := planned(out); !slices.Equal(got, want) {
		t.Errorf("planned: %q, want %q", got, want)
	}
}

const sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestParsePackages(t *testing.T) {
	one := "Package: numpy\nVersion: 1:1.2-1\nArchitecture: amd64\nFilename: pool/n.deb\nSize: 12\nSHA256: " + sum +
		"\nDescription: x\n more\n"
	set, err := parsePackages(one + "\n" + one + "\n\n")
	if err != nil || len(set) != 1 {
		t.Fatalf("%d packages, error %v; want the one, once", len(set), err)
	}
	p := set[0]
	if p.cacheName() != "numpy_1%3a1.2-1_amd64.deb" || p.size != 12 || p.sha256 != sum {
		t.Errorf("got %+v", p)
	}
	if strings.Contains(p.stanza, "Filename") || !strings.Contains(p.stanza, "\n more\n") {
		t.Errorf("stanza %q should lack the Filename only", p.stanza)
	}
	for _, bad := range []string{
		"", "\n\n",
		strings.Replace(one, sum, "short", 1),
		strings.Replace(one, "Size: 12", "Size: twelve", 1),
		strings.Replace(one, "Package: numpy", "Package: ../numpy", 1),
		strings.Replace(one, "Version: 1:1.2-1", "", 1),
	} {
		if _, err := parsePackages(bad); err == nil {
			t.Errorf("parsePackages(%q) gives no error", bad)
		}
	}
}

func FuzzParsePackages(f *testing.F) {
	f.Add("Package: a\nVersion: 1\nArchitecture: all\nSize: 1\nSHA256: " + sum + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := parsePackages(text)
		if err != nil {
			return
		}
		for _, p := range set {
			if strings.Contains(p.name, "/") || p.stanza == "" {
				t.Errorf("%q parses to %+v", text, p)
			}
		}
	})
}
