package build

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"berth/proto"
)

// tarOf returns a tar of one file, in a format. A long name makes a header that takes several blocks.
func tarOf(t *testing.T, format tar.Format, name string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	text := "FROM base\n"
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Format: format})
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zstded(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// All forms of a tar are stored as they are, without compression.
func TestContextsThatAreTaken(t *testing.T) {
	long := strings.Repeat("d/", 200) + "Dockerfile"
	for name, data := range map[string][]byte{
		"ustar":       tarOf(t, tar.FormatUSTAR, "Dockerfile"),
		"pax":         tarOf(t, tar.FormatPAX, long),
		"gnu":         tarOf(t, tar.FormatGNU, long),
		"empty":       make([]byte, 2*tarBlock),
		"short zeros": make([]byte, tarBlock),
	} {
		for form, body := range map[string][]byte{"plain": data, "gzip": gzipped(t, data), "zstd": zstded(t, data)} {
			path := filepath.Join(t.TempDir(), "context.tar")
			plain, err := openContext(bytes.NewReader(body))
			if err == nil {
				err = storeContext(t.Context(), path, plain, 1<<20)
			}
			stored, _ := os.ReadFile(path)
			if err != nil || !bytes.Equal(stored, data) {
				t.Errorf("%s, %s: %v; %d bytes are stored, not %d", name, form, err, len(stored), len(data))
			}
		}
	}
}

// What is no tar is refused at its first bytes, and a tar that breaks off before the build begins.
func TestContextsThatAreNoTar(t *testing.T) {
	whole := tarOf(t, tar.FormatUSTAR, "Dockerfile")
	dockerfile := []byte(strings.Repeat("RUN true # not an archive\n", 40))
	for name, c := range map[string]struct {
		body []byte
		says string
	}{
		"nothing":             {nil, "must be the build context"},
		"few bytes":           {[]byte("FROM base\n"), "has 10 bytes, and is no tar"},
		"a Dockerfile":        {dockerfile, `it begins with "RUN true # not a"`},
		"a Dockerfile, gzip":  {gzipped(t, dockerfile), "is no tar"},
		"a Dockerfile, zstd":  {zstded(t, dockerfile), "is no tar"},
		"a zip":               {append([]byte("PK\x03\x04"), make([]byte, 600)...), "is no tar"},
		"broken gzip":         {gzipped(t, whole)[:40], "cannot be read"},
		"gzip of a gzip":      {gzipped(t, append(gzipped(t, whole), make([]byte, 600)...)), "is no tar"},
		"nothing in the gzip": {gzipped(t, nil), "must be the build context"},
	} {
		if _, err := openContext(bytes.NewReader(c.body)); proto.CodeOf(err) != proto.InvalidArgument ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain, err := openContext(bytes.NewReader(whole[:tarBlock+5]))
	if err == nil {
		err = storeContext(t.Context(), filepath.Join(t.TempDir(), "context.tar"), plain, 1<<20)
	}
	if proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), "no whole tar") {
		t.Errorf("a tar that breaks off: %v", err)
	}
}

// Limits of a step have the range of those of containers.
func TestLimitsOfSteps(t *testing.T) {
	most := proto.Limits{CPUs: 2, MemoryBytes: 1 << 30, PIDs: 512, DiskBytes: 1 << 30}
	for says, asked := range map[string]proto.Limits{
		"cpus must be from 0.01 to 2,":                     {CPUs: proto.NoLimit},
		"memory_bytes must be from 16777216 to 1073741824": {MemoryBytes: proto.NoLimit},
		"pids must be from 16 to 512":                      {PIDs: proto.NoLimit},
		"disk_bytes must be from 16777216 to":              {DiskBytes: 1 << 31},
	} {
		if err := checkLimits(asked, most); proto.CodeOf(err) != proto.InvalidArgument ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", asked, err, says)
		}
	}
	if err := checkLimits(proto.Limits{PIDs: 16}, most); err != nil {
		t.Error(err)
	}
}
