// Package driver holds the programs that interpreters are given: they run cells of their language and tell the
// results. It is apart from package code because images have one of them compiled.
package driver

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
)

// The drivers, in their own languages.
var (
	//go:embed boot.py
	Python string
	// PythonRich is what a result of Python needs beyond its repr.
	//go:embed rich.py
	PythonRich string
	// Node is for JavaScript and TypeScript.
	//go:embed node.js
	Node string
	//go:embed driver.R
	R string
	//go:embed Driver.java
	Java string
	//go:embed shell.sh
	Shell string
)

// JavaDir is where an image has Java compiled, as Driver.class, with its source beside it. It is named by the source,
// so that no daemon runs the driver of another one.
var JavaDir = "/usr/lib/berth/java/" + key(Java)

func key(source string) string {
	sum := sha256.Sum256([]byte(source))
	return hex.EncodeToString(sum[:8])
}
