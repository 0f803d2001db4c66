// Package inside has the means by which code in a container calls its session's tools: a Python module, a JavaScript
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

// Dir is where all of it is in a container. The directory is root's: who runs as the user cannot change what others
// load from it.
const Dir = "/.berth/tools"

// Lists are the variables in which commands find it, each a list of directories that ours are put behind. What a
// caller has there goes first.
var Lists = []string{"PATH=" + Dir + "/bin", "PYTHONPATH=" + Dir + "/python", "NODE_PATH=" + Dir + "/node"}

// members are the files by their names from the root, and links.
var members = []tar.Header{
	{Name: ".berth/tools/python/tools.py"},
	{Name: ".berth/tools/node/tools/index.js"},
	{Name: ".berth/tools/node/tools/package.json"},
	{Name: ".berth/tools/bin/tools", Linkname: "../../guest"},
	// An import does not look in NODE_PATH, but in node_modules of the directories above its file. In the root that
	// would make it what npm installs into, for everybody who has no package of their own; so files import it by its
	// path, which is to be short.
	{Name: ".berth/tools/tools.js", Linkname: "node/tools/index.js"},
}

var texts = map[string]string{
	".berth/tools/python/tools.py":         Python,
	".berth/tools/node/tools/index.js":     Node,
	".berth/tools/node/tools/package.json": `{"name": "tools", "main": "index.js"}` + "\n",
}

// Archive is all of it as a tar archive, for the root of a container.
var Archive = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
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

// must is for what cannot fail: a buffer takes everything.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("the archive of tools: %v", err))
	}
}
