// Package driver holds the drivers of interpreters: programs, each in its own language, that run cells and report the
// results. Package code gives them to interpreters, and sandbox-image compiles the one for Java.
package driver

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
)

// The drivers, in their own languages.
var (
	//go:embed boot.py
	Python string
	// PythonRich makes the results of Python that need more than their repr.
	//go:embed rich.py
	PythonRich string
	// PythonNotebook has the manners of notebooks, for cells that are not Python as they stand.
	//go:embed notebook.py
	PythonNotebook string
	// PythonCharts describes the figures of matplotlib as data.
	//go:embed charts.py
	PythonCharts string
	// Node runs JavaScript and TypeScript. It takes as arguments the language (js or ts), NodeModules and Acorn.
	//go:embed node.js
	Node string
	// NodeModules rewrites module syntax.
	//go:embed modules.js
	NodeModules string
	//go:embed driver.R
	R string
	//go:embed Driver.java
	Java string
	//go:embed shell.sh
	Shell string
	// Programs runs whole programs of languages that are compiled, and of PHP. It is in Python, and takes the language
	// as its argument.
	//go:embed programs.py
	Programs string
)

// acorn is dist/acorn.js of the npm package acorn 8.19.0, unchanged, packed by gzip -9n. Its license is in
// acorn.LICENSE.
//
//go:embed acorn.js.gz
var acorn []byte

// Acorn is the parser of JavaScript that NodeModules uses: packed by gzip, in base64.
var Acorn = base64.StdEncoding.EncodeToString(acorn)

// JavaDir is the directory in which an image has the driver for Java compiled, as Driver.class, with its source. Its
// name is a digest of the source, so that a daemon never runs the driver of another version.
var JavaDir = "/usr/lib/berth/java/" + key(Java)

func key(source string) string {
	sum := sha256.Sum256([]byte(source))
	return hex.EncodeToString(sum[:8])
}
