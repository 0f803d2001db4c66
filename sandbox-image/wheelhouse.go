package sandboximage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/proto"
	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/recipe"
)

// A wheelhouse is the cache's directory of downloaded wheels.
type wheelhouse struct {
	*buildenv.Env
	dir  string
	have map[string]string // names of the files, by their SHA-256
}

// newWheelhouse opens the directory. Files are identified by their contents, not their names: a damaged file is not
// taken for a wheel.
func newWheelhouse(e *buildenv.Env) (*wheelhouse, error) {
	h := &wheelhouse{Env: e, dir: filepath.Join(e.Cache, "wheels"), have: map[string]string{}}
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return nil, buildenv.IOError("the wheel cache", err)
	}
	return h, h.scan()
}

// scan adds the new files of the directory.
func (h *wheelhouse) scan() error {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return buildenv.IOError("the wheel cache", err)
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
			return buildenv.IOError("the wheel cache", err)
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
func (h *wheelhouse) file(w recipe.Wheel) (string, bool) {
	for _, hash := range w.Hashes {
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
func (h *wheelhouse) fetch(ctx context.Context, list []recipe.Wheel) error {
	missing := slices.DeleteFunc(slices.Clone(list), func(w recipe.Wheel) bool { _, ok := h.file(w); return ok })
	done, all := int64(len(list)-len(missing)), int64(len(list))
	h.Step(buildenv.Step{Name: buildenv.StepDownloading, Done: done, Total: all})
	for batch := range slices.Chunk(missing, wheelBatch) {
		started := done
		err := h.download(ctx, batch, func(item string) {
			h.Step(buildenv.Step{Name: buildenv.StepDownloading, Item: item, Done: started, Total: all})
			started = min(started+1, done+int64(len(batch)))
		})
		if err != nil {
			return err
		}
		done += int64(len(batch))
		h.Step(buildenv.Step{Name: buildenv.StepDownloading, Done: done, Total: all})
	}
	return nil
}

// download fetches one batch into a directory of its own, and moves it here once it is whole.
func (h *wheelhouse) download(ctx context.Context, batch []recipe.Wheel, begin func(item string)) error {
	dir, err := os.MkdirTemp(h.Cache, "build-wheels-")
	if err != nil {
		return buildenv.IOError("the wheel cache", err)
	}
	defer os.RemoveAll(dir)
	wants := filepath.Join(dir, recipe.WheelsFile)
	var text strings.Builder
	for _, w := range batch {
		text.WriteString(w.Line())
	}
	if err := os.WriteFile(wants, []byte(text.String()), 0o644); err != nil {
		return buildenv.IOError("the wheel cache", err)
	}
	cmd := buildenv.Command{
		Path: pip.program,
		Args: slices.Concat([]string{
			"download", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--progress-bar", "off",
			"--no-cache-dir",
			"--disable-pip-version-check", "--dest", filepath.Join(dir, "got"), "--requirement", wants,
		}, pipPlatform()),
		Env:    append(os.Environ(), "LC_ALL=C.UTF-8"),
		Log:    h.Log,
		Output: func(line string) { beginWheel(line, begin) },
	}
	if _, err := cmd.Run(ctx); err != nil {
		return buildenv.Unavailable(ctx, "the Python packages cannot be downloaded", err)
	}
	return h.addFiles(filepath.Join(dir, "got"), batch)
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
		args = append(args, "--platform", fmt.Sprintf("manylinux_2_%d_%s", minor, recipe.Machine()))
	}
	for _, old := range []string{"1", "2010", "2014"} {
		args = append(args, "--platform", "manylinux"+old+"_"+recipe.Machine())
	}
	return args
}

// addFiles moves downloaded files here, and checks that the batch is complete.
func (h *wheelhouse) addFiles(dir string, batch []recipe.Wheel) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return buildenv.IOError("the wheel cache", err)
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(h.dir, e.Name())); err != nil {
			return buildenv.IOError("the wheel cache", err)
		}
	}
	if err := h.scan(); err != nil {
		return err
	}
	for _, w := range batch {
		if _, ok := h.file(w); !ok {
			return proto.Errorf(proto.Unavailable, buildenv.Op, w.Name,
				"Python package %s did not arrive; run the build again; finished downloads are used again", w.Name)
		}
	}
	return nil
}

// put downloads the wheels of the list for this architecture and links them into dir, which is made if there are any.
func (h *wheelhouse) put(ctx context.Context, dir string, list []recipe.Wheel) error {
	list = recipe.ForHost(list)
	if len(list) == 0 {
		return nil
	}
	if err := h.fetch(ctx, list); err != nil {
		return err
	}
	if err := h.link(dir, list); err != nil {
		return buildenv.IOError("the wheels", err)
	}
	return nil
}

// link links the wheels of the list into dir, under their own names, and writes the list for pip beside them.
func (h *wheelhouse) link(dir string, list []recipe.Wheel) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	for _, w := range list {
		name, _ := h.file(w)
		if err := os.Link(filepath.Join(h.dir, name), filepath.Join(dir, name)); err != nil {
			return err
		}
		text.WriteString(w.Line())
	}
	return os.WriteFile(filepath.Join(dir, recipe.WheelsFile), []byte(text.String()), 0o644)
}

// removeOthers removes the wheels that are not in the list.
func (h *wheelhouse) removeOthers(list []recipe.Wheel) error {
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
