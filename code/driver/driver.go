// Package driver holds the drivers of interpreters: programs, each in its own language, that run cells and report the
// results. Package code gives them to interpreters, and sandbox-image compiles the one for Java.
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
	// PythonRich makes the results of Python that need more than their repr.
	//go:embed rich.py
	PythonRich string
	// Node runs JavaScript and TypeScript.
	//go:embed node.js
	Node string
	//go:embed driver.R
	R string
	//go:embed Driver.java
	Java string
	//go:embed shell.sh
	Shell string
)

// JavaDir is the directory in which an image has the driver for Java compiled, as Driver.class, with its source. Its
// name is a digest of the source, so that a daemon never runs the driver of another version.
var JavaDir = "/usr/lib/berth/java/" + key(Java)

func key(source string) string {
	sum := sha256.Sum256([]byte(source))
	return hex.EncodeToString(sum[:8])
}
