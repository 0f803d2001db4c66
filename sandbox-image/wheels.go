package sandboximage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"berth/proto"
)

// A wheel is one Python package, in one version, in the files that its hashes allow.
type wheel struct {
	name   string
	pin    string   // NAME==VERSION
	hashes []string // SHA-256, hexadecimal; one for each architecture
	only   string   // the only architecture, in uname's words, that has it; empty: all
}

// requirement matches a line of wheels.txt after joining continuations.
var requirement = regexp.MustCompile(
	`^(([a-z0-9][a-z0-9.-]*)==[a-zA-Z0-9.+!]+)(?: ; platform_machine == "([a-z0-9_]+)")?((?: --hash=sha256:[0-9a-f]{64})+)$`)

// parseWheels reads wheels.txt, a strict subset of pip's requirement files.
func parseWheels(text string) ([]wheel, error) {
	var list []wheel
	for _, line := range lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.Join(strings.Fields(line), " ")
		m := requirement.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%s: %q is not NAME==VERSION with hashes", wheelsFile, cut(line, 60))
		}
		w := wheel{name: m[2], pin: m[1], only: m[3]}
		for _, hash := range strings.Fields(m[4]) {
			w.hashes = append(w.hashes, strings.TrimPrefix(hash, "--hash=sha256:"))
		}
		if slices.ContainsFunc(list, func(o wheel) bool { return o.name == w.name }) {
			return nil, fmt.Errorf("%s: %s is listed twice", wheelsFile, w.name)
		}
		list = append(list, w)
	}
	return list, nil
}

// cut shortens s for messages.
func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// machine is this architecture in the words of wheels and uname.
func machine() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// line returns the wheel in pip's form.
func (w wheel) line() string {
	return w.pin + " --hash=sha256:" + strings.Join(w.hashes, " --hash=sha256:") + "\n"
}

// ours returns the wheels of the list for this architecture.
func ours(list []wheel) []wheel {
	return slices.DeleteFunc(slices.Clone(list), func(w wheel) bool { return w.only != "" && w.only != machine() })
}

// A wheelhouse is the cache's directory of downloaded wheels.
type wheelhouse struct {
	*build
	dir  string
	have map[string]string // names of the files, by their SHA-256
}

// wheelhouse opens the directory. Files are identified by their contents, not their names: a damaged file is not
// taken for a wheel.
func (b *build) wheelhouse() (*wheelhouse, error) {
	h := &wheelhouse{build: b, dir: filepath.Join(b.cache, "wheels"), have: map[string]string{}}
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return nil, ioError("the wheel cache", err)
	}
	return h, h.look()
}

func (h *wheelhouse) look() error {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return ioError("the wheel cache", err)
	}
	known := map[string]bool{}
	for _, name := range h.have {
		known[name] = true
	}
	for _, e := range entries {
		if known[e.Name()] || !e.Type().IsRegular() {
			continue
		}
		sum, err := fileSum(filepath.Join(h.dir, e.Name()))
		if err != nil {
			return ioError("the wheel cache", err)
		}
		h.have[sum] = e.Name()
	}
	return nil
}

func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// file returns the wheel's file if it is here.
func (h *wheelhouse) file(w wheel) (string, bool) {
	for _, hash := range w.hashes {
		if name, ok := h.have[hash]; ok {
			return name, true
		}
	}
	return "", false
}

// wheelBatch is how many wheels one run of pip fetches. Starting pip costs about a second, and a failed run loses its
// downloads.
const wheelBatch = 12

// fetch downloads the missing wheels of the list with the host's pip and its configuration. pip checks the hashes and
// runs no downloaded code.
func (h *wheelhouse) fetch(ctx context.Context, list []wheel) error {
	missing := slices.DeleteFunc(slices.Clone(list), func(w wheel) bool { _, ok := h.file(w); return ok })
	done, all := int64(len(list)-len(missing)), int64(len(list))
	h.step(Step{Name: StepDownloading, Done: done, Total: all})
	for batch := range slices.Chunk(missing, wheelBatch) {
		begun := done
		err := h.download(ctx, batch, func(item string) {
			h.step(Step{Name: StepDownloading, Item: item, Done: begun, Total: all})
			begun = min(begun+1, done+int64(len(batch)))
		})
		if err != nil {
			return err
		}
		done += int64(len(batch))
		h.step(Step{Name: StepDownloading, Done: done, Total: all})
	}
	return nil
}

// download fetches one batch into a directory of its own, and moves it here once it is whole.
func (h *wheelhouse) download(ctx context.Context, batch []wheel, begin func(item string)) error {
	dir, err := os.MkdirTemp(h.cache, "build-wheels-")
	if err != nil {
		return ioError("the wheel cache", err)
	}
	defer os.RemoveAll(dir)
	wants := filepath.Join(dir, wheelsFile)
	var text strings.Builder
	for _, w := range batch {
		text.WriteString(w.line())
	}
	if err := os.WriteFile(wants, []byte(text.String()), 0o644); err != nil {
		return ioError("the wheel cache", err)
	}
	cmd := command{
		path: pip.program,
		args: slices.Concat([]string{
			"download", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--progress-bar", "off",
			"--no-cache-dir",
			"--disable-pip-version-check", "--dest", filepath.Join(dir, "got"), "--requirement", wants,
		}, pipPlatform()),
		env:    append(os.Environ(), "LC_ALL=C.UTF-8"),
		log:    h.log,
		output: func(line string) { beginWheel(line, begin) },
	}
	if _, err := cmd.run(ctx); err != nil {
		return unavailable(ctx, "the Python packages cannot be downloaded", err)
	}
	return h.take(filepath.Join(dir, "got"), batch)
}

// beginWheel parses a line of pip: " Downloading numpy-2.0.0-cp311-….whl (18.2 MB)".
func beginWheel(line string, begin func(item string)) {
	if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "Downloading "); ok {
		file, size, _ := strings.Cut(rest, " ")
		name, _, _ := strings.Cut(file[strings.LastIndexByte(file, '/')+1:], "-")
		if !strings.HasSuffix(file, ".metadata") {
			begin(name + " " + strings.Trim(size, "()"))
		}
	}
}

// pythonVersion is the suite's.
const pythonVersion = "3.11.2"

// newestGlibc is the minor version of the suite's C library, 2.36. Each wheel names the oldest version that it runs
// on.
const newestGlibc = 36

// pipPlatform makes pip choose wheels for the image, not the host.
func pipPlatform() []string {
	args := []string{"--python-version", pythonVersion, "--implementation", "cp", "--abi", "cp311", "--abi", "abi3",
		"--abi", "none"}
	for minor := 5; minor <= newestGlibc; minor++ {
		args = append(args, "--platform", fmt.Sprintf("manylinux_2_%d_%s", minor, machine()))
	}
	for _, old := range []string{"1", "2010", "2014"} {
		args = append(args, "--platform", "manylinux"+old+"_"+machine())
	}
	return args
}

// take moves downloaded files here, and checks that the batch is complete.
func (h *wheelhouse) take(dir string, batch []wheel) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ioError("the wheel cache", err)
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(h.dir, e.Name())); err != nil {
			return ioError("the wheel cache", err)
		}
	}
	if err := h.look(); err != nil {
		return err
	}
	for _, w := range batch {
		if _, ok := h.file(w); !ok {
			return proto.Errorf(proto.Unavailable, op, w.name, "Python package %s did not arrive; run it again, "+
				"what was downloaded is kept", w.name)
		}
	}
	return nil
}

// lay links the wheels of the list into dir, under their own names, and writes the list for pip beside them.
func (h *wheelhouse) lay(dir string, list []wheel) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	for _, w := range list {
		name, _ := h.file(w)
		if err := os.Link(filepath.Join(h.dir, name), filepath.Join(dir, name)); err != nil {
			return err
		}
		text.WriteString(w.line())
	}
	return os.WriteFile(filepath.Join(dir, wheelsFile), []byte(text.String()), 0o644)
}

// tidy removes the wheels that are not in the list.
func (h *wheelhouse) tidy(list []wheel) error {
	keep := map[string]bool{}
	for _, w := range list {
		if name, ok := h.file(w); ok {
			keep[name] = true
		}
	}
	for _, name := range h.have {
		if keep[name] {
			continue
		}
		if err := os.Remove(filepath.Join(h.dir, name)); err != nil {
			return err
		}
	}
	return nil
}
