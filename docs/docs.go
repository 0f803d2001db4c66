// Package docs holds the documentation of the project, which the daemon serves.
package docs

import "embed"

// Files are the pages and their pictures.
//
//go:embed *.md *.svg *.png *.json decisions/*.md notes/*.md
var Files embed.FS
