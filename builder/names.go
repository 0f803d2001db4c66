package main

import (
	"github.com/distribution/reference"
	"github.com/moby/buildkit/exporter"
)

// localName returns the name by which BuildKit looks an image up: registry, repository and tag, without a digest.
func localName(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ref
	}
	tag := "latest"
	if t, ok := named.(reference.Tagged); ok {
		tag = t.Tag()
	}
	return named.Name() + ":" + tag
}

func export1(e exporter.ExporterInstance) []exporter.ExporterInstance {
	return []exporter.ExporterInstance{e}
}
