// Package inside holds the means by which code in a container calls its session's tools: a Python module, a JavaScript
// module, and the command `tools`, which is the guest's program under another name. None of them decides anything. They
// speak HTTP on the container's loopback, to the address in BERTH_TOOLS:
//
//	GET  /v1/tools   {"tools": [{"name", "description", "input_schema", "async"}]}: what the session may call
//	POST /v1/calls   {"calls": [{"id", "tool", "input"}]}; the answer has a line of JSON for each call as it ends:
//	                 {"id", "result"} or {"id", "error": {"type", "message"}}
//
// Each request carries the token in BERTH_TOOLS_TOKEN. After a broken connection the request is repeated with the same
// ids. Calls that coroutines of one loop make at once are one request.
package inside

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"fmt"
	"sync"
)

// The modules, in their own languages.
var (
	//go:embed tools.py
	Python string
	//go:embed tools.js
	Node string
)

// Dir is the directory of the modules and the command in a container. It belongs to root, so a command that runs as
// the user cannot change what others load from it.
const Dir = "/.berth/tools"

// Lists are the variables in which commands find the directory. Each is a list of directories; ours is appended, so
// that the caller's own come first.
var Lists = []string{"PATH=" + Dir + "/bin", "PYTHONPATH=" + Dir + "/python", "NODE_PATH=" + Dir + "/node"}

// files lists the files and links, by their names from the root.
var files = []tar.Header{
	{Name: ".berth/tools/python/tools.py"},
	{Name: ".berth/tools/node/tools/index.js"},
	{Name: ".berth/tools/node/tools/package.json"},
	{Name: ".berth/tools/bin/tools", Linkname: "../../guest"},
	// An import ignores NODE_PATH and looks for node_modules in the directories above its file. A node_modules in the
	// root would also receive what npm installs outside of a package, so files import the module by this short path.
	{Name: ".berth/tools/tools.js", Linkname: "node/tools/index.js"},
}

// texts are the contents of the files.
var texts = map[string]string{
	".berth/tools/python/tools.py":         Python,
	".berth/tools/node/tools/index.js":     Node,
	".berth/tools/node/tools/package.json": `{"name": "tools", "main": "index.js"}` + "\n",
}

// Archive is the files and links as a tar archive, for the root of a container.
var Archive = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range files {
		text := texts[h.Name]
		h.Mode, h.Size, h.Typeflag = 0o644, int64(len(text)), tar.TypeReg
		if h.Linkname != "" {
			h.Typeflag = tar.TypeSymlink
		}
		must(w.WriteHeader(&h))
		_, err := w.Write([]byte(text))
		must(err)
	}
	must(w.Close())
	return b.Bytes()
})

// must panics on an error that cannot happen: a buffer accepts every write.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("the archive of tools: %v", err))
	}
}
