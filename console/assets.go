package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed web
var web embed.FS

// libs always has .gitignore, so that this compiles without the libraries.
//
//go:embed all:libs
var libs embed.FS

// mediaTypes are the types of assets by extension. Files of other types are not served.
var mediaTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// modules are the bare names by which modules import libraries, and the files that they stand for.
var modules = map[string]string{
	"preact": "preact.mjs", "preact/hooks": "hooks.mjs", "htm": "htm.mjs", "@xterm/xterm": "xterm.mjs",
	"@xterm/addon-fit": "addon-fit.mjs", "uplot": "uplot.mjs",
}

// An asset is a file of the page.
type asset struct {
	media  string
	plain  []byte
	zipped func() []byte // made at its first use
}

// assets are all files by their path, and a version that changes with any of them.
type assets struct {
	files   map[string]asset
	version string
	ready   bool // the libraries are there
}

// readAssets reads the embedded files.
func readAssets() (*assets, error) {
	a := &assets{files: map[string]asset{}}
	for _, tree := range []struct {
		from embed.FS
		name string
	}{{web, "web"}, {libs, "libs"}} {
		err := fs.WalkDir(tree.from, tree.name, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || mediaTypes[path.Ext(name)] == "" {
				return err
			}
			data, err := tree.from.ReadFile(name)
			if err != nil {
				return err
			}
			a.files[name] = asset{media: mediaTypes[path.Ext(name)], plain: data,
				zipped: sync.OnceValue(func() []byte { return zip(data) })}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	_, a.ready = a.files["libs/preact.mjs"]
	sum := sha256.New()
	for _, name := range a.names() {
		sum.Write([]byte(name + "\x00"))
		sum.Write(a.files[name].plain)
	}
	a.version = hex.EncodeToString(sum.Sum(nil))[:16]
	return a, nil
}

// at returns where the files are, with a slash at its end.
func (a *assets) at() string { return Path + "/" + a.version + "/" }

// importMap returns the import map of the page, which has it inline. The policy has its hash.
func (a *assets) importMap() (string, error) {
	imports := map[string]string{}
	for name, file := range modules {
		imports[name] = a.at() + "libs/" + file
	}
	text, err := json.Marshal(map[string]any{"imports": imports})
	return string(text), err
}

// names returns the paths of all files, sorted.
func (a *assets) names() []string {
	var names []string
	for name := range a.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// preloads are the modules that the first page needs, so that the browser fetches them at once and not one level of
// imports after the other. The others are loaded with their page.
func (a *assets) preloads() []string {
	list := []string{"libs/preact.mjs", "libs/hooks.mjs", "libs/htm.mjs"}
	for _, name := range a.names() {
		if rest, ok := strings.CutPrefix(name, "web/core/"); ok && strings.HasSuffix(rest, ".js") {
			list = append(list, name)
		}
	}
	return list
}

// zip compresses data. Writing to memory never fails.
func zip(data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

// hashSource returns the source expression of a policy that allows an inline element with this text.
func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
