package sandboximage

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"

	"berth/proto"
	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/debian"
	"berth/sandbox-image/recipe"
)

// WriteDockerfile writes the image as a Dockerfile, with all files that it copies, into dir, which is made or must be
// empty. It serves those who build and store images elsewhere. The lists are Build's, but Debian's packages come in
// the versions of the day and from the mirrors in the definition, so the result is less reproducible.
func WriteDockerfile(name, dir string) error {
	def, err := load(name)
	if err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return proto.Errorf(proto.InvalidArgument, buildenv.Op, "DIR", "the directory is not empty; name a new one")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return buildenv.IOError("the directory", err)
	}
	if err := writeContext(def, dir); err != nil {
		return buildenv.IOError("the directory", err)
	}
	return nil
}

// writeContext writes the Dockerfile and, below dir, the directories that its steps copy.
func writeContext(def recipe.Definition, dir string) error {
	root := def
	if def.From != nil {
		root = *def.From
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeRoot(root, filepath.Join(dir, root.Name)); err != nil {
		return err
	}
	for _, a := range def.Additions {
		if err := writeStep(a, filepath.Join(dir, a.Name)); err != nil {
			return err
		}
	}
	text, err := dockerfileOf(def, root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "Dockerfile"), text, 0o644)
}

// A dockerStep is the data of one part of the Dockerfile.
type dockerStep struct {
	Name    string
	Debian  string // packages, as arguments; may be empty
	Prepare bool   // it has a prepare.sh
	Modules bool   // npm has to fetch something
}

// dockerfileOf returns the Dockerfile of def, whose bottom image is root.
func dockerfileOf(def, root recipe.Definition) ([]byte, error) {
	var steps []dockerStep
	for _, a := range def.Additions {
		steps = append(steps, dockerStep{a.Name, wrap(a.Packages), a.Prepare != "", a.NPM})
	}
	var text bytes.Buffer
	err := dockerfile.Execute(&text, map[string]any{
		"Name": def.Name, "Suite": debian.Suite, "Root": dockerStep{Name: root.Name, Debian: wrap(root.Packages)},
		"Steps": steps, "Env": def.Env,
	})
	return text.Bytes(), err
}

// writeRoot writes the input of the bottom image.
func writeRoot(def recipe.Definition, dir string) error {
	texts := map[string]string{"dpkg.cfg": def.Dpkg, recipe.PrepareFile: def.Prepare, recipe.SetupFile: def.Setup,
		"install.sh": installScript}
	if len(def.Wheels) > 0 {
		var list strings.Builder
		for _, w := range def.Wheels {
			list.WriteString(w.Line())
		}
		texts[path.Join("wheels", recipe.WheelsFile)] = list.String()
	}
	if err := buildenv.WriteTexts(dir, texts); err != nil {
		return err
	}
	return buildenv.WriteFiles(filepath.Join(dir, recipe.FilesDir), def.Files)
}

// writeStep writes the input of a layer in the form that install.sh expects.
func writeStep(a recipe.Layer, dir string) error {
	text := map[string]string{"install.sh": installScript}
	for _, name := range []string{recipe.PrepareFile, recipe.SetupFile, recipe.NPMFile, recipe.NPMLockFile,
		recipe.WheelsFile} {
		data, err := fs.ReadFile(a.Tree, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if name == recipe.WheelsFile {
			name = path.Join("wheels", recipe.WheelsFile)
		}
		text[name] = string(data)
	}
	if err := buildenv.WriteTexts(dir, text); err != nil {
		return err
	}
	return a.WriteFiles(filepath.Join(dir, recipe.FilesDir))
}

// wrap breaks a list of words into continued lines.
func wrap(words []string) string {
	var b strings.Builder
	width := 0
	for _, w := range words {
		if width += len(w) + 1; width > 100 {
			b.WriteString(" \\\n     ")
			width = len(w)
		}
		b.WriteString(" " + w)
	}
	return b.String()
}

// dockerfile works without BuildKit, for any builder. Files that a step copies to /run/berth are gone from the tree
// after it.
var dockerfile = template.Must(template.New("Dockerfile").Parse(
	`# The image {{.Name}} of berth, as written by "berth image dockerfile". Build it in this directory:
#
#	docker build -t berth-{{.Name}} .
#
# berth needs none of this: "berth image build {{.Name}}" makes the image without a registry.
{{- range .Steps}}{{if .Modules}}
FROM node:22-{{$.Suite}}-slim AS {{.Name}}-modules
WORKDIR /modules
COPY {{.Name}}/package.json {{.Name}}/package-lock.json ./
RUN npm ci --ignore-scripts --omit=dev --no-audit --no-fund
{{end}}{{end}}
FROM debian:{{.Suite}}
ARG DEBIAN_FRONTEND=noninteractive
# Files that are younger get this time, and compiled Python remembers it.
ARG SOURCE_DATE_EPOCH=1735689600

# {{.Root.Name}}. The options of dpkg have the name under which its scripts know them.
COPY {{.Root.Name}} /run/berth
RUN cp /run/berth/dpkg.cfg /etc/dpkg/dpkg.cfg.d/99mmdebstrap && sh -eu /run/berth/prepare.sh \
 && apt-get update && apt-get install --yes --no-install-recommends{{.Root.Debian}} \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin \
 && BERTH_ONLINE=1 sh -eu /run/berth/install.sh && rm -rf /run/berth
{{range .Steps}}
# {{.Name}}
COPY {{.Name}} /run/berth
{{- if .Prepare}}
RUN sh -eu /run/berth/prepare.sh
{{- end}}
{{- if .Debian}}
RUN apt-get update && apt-get install --yes --no-install-recommends{{.Debian}} \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
{{- end}}
{{- if .Modules}}
COPY --from={{.Name}}-modules /modules/node_modules /run/berth/modules
{{- end}}
RUN BERTH_ONLINE=1 sh -eu /run/berth/install.sh && rm -rf /run/berth
{{end}}
{{range .Env}}ENV {{.}}
{{end -}}
USER 1000:1000
WORKDIR /workspace
CMD ["/bin/bash"]
`))
