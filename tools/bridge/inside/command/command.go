// Package command is the command `tools`, by which shell scripts in a container call the tools of their session. The
// guest's program is also this command, since each container has it already. So nothing here imports a package that the
// guest does not link, such as net/http.
//
//	tools                      lists the tools
//	tools NAME --help          describes one
//	tools NAME u=1 --v 2 text  a call: properties by name, and the rest in the order of the tool's schema
//	tools NAME '{"u": 1}'      the whole input; with - it is read from standard input
package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"berth/tools/bridge/inside/arguments"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailed  = 1  // the tool failed, or could not be reached
	exitUsage   = 2  // wrong arguments
	exitRefused = 77 // the session may not call it; EX_NOPERM
)

// Asked reports whether a program was started as this command, and gives its arguments.
func Asked(args []string) ([]string, bool) {
	switch {
	case len(args) > 0 && path.Base(args[0]) == "tools":
		return args[1:], true
	case len(args) > 1 && args[1] == "tools":
		return args[2:], true
	}
	return nil, false
}

// A Run is one run of the command.
type Run struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	URL, Token     string // as in BERTH_TOOLS and BERTH_TOOLS_TOKEN
}

// Main is the whole program.
func Main(args []string) int {
	r := Run{os.Stdin, os.Stdout, os.Stderr, os.Getenv("BERTH_TOOLS"), os.Getenv("BERTH_TOOLS_TOKEN")}
	return r.Do(args)
}

const usage = `usage: tools [--json]                  list the tools
       tools NAME --help              how one is called
       tools NAME [name=value]...     call it; also --name value, or values in order
       tools NAME '{"name": value}'   call it with a JSON object; - reads that from standard input
`

// Do runs the command and gives its exit status.
func (r Run) Do(args []string) int {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		fmt.Fprint(r.Stdout, usage)
		return exitOK
	}
	list, err := r.listTools()
	if err != nil {
		return r.fail("", err)
	}
	switch {
	case len(args) == 0:
		r.show(list)
		return exitOK
	case len(args) == 1 && args[0] == "--json":
		return r.showJSON(list)
	case strings.HasPrefix(args[0], "-"):
		fmt.Fprintf(r.Stderr, "tools: %s is not an option\n%s", args[0], usage)
		return exitUsage
	}
	t := arguments.Find(list, args[0])
	if len(args) == 2 && t.Listed && (args[1] == "--help" || args[1] == "-h") && !t.Has("h") && !t.Has("help") {
		t.PrintHelp(r.Stdout)
		return exitOK
	}
	return r.call(t, args[1:])
}

// call makes the call and prints its result.
func (r Run) call(t arguments.Tool, words []string) int {
	input, err := t.Input(words, r.Stdin)
	if err != nil {
		fmt.Fprintf(r.Stderr, "tools: %s: %v\n", t.Name, err)
		return exitUsage
	}
	result, err := r.callTool(t.Name, input)
	if err != nil {
		return r.fail(t.Name+": ", err)
	}
	var text string
	if json.Unmarshal(result, &text) == nil && len(result) > 0 && result[0] == '"' {
		result = []byte(text)
	}
	if len(result) == 0 || result[len(result)-1] != '\n' {
		result = append(result, '\n')
	}
	if _, err := r.Stdout.Write(result); err != nil {
		return exitFailed
	}
	return exitOK
}

// fail prints why something failed.
func (r Run) fail(what string, err error) int {
	fmt.Fprintf(r.Stderr, "tools: %s%v\n", what, err)
	if f, ok := err.(*failure); ok && f.Type == permissionError {
		return exitRefused
	}
	return exitFailed
}

// show prints the tools.
func (r Run) show(list []arguments.Tool) {
	if len(list) == 0 {
		fmt.Fprintln(r.Stderr, "tools: this session may call no tool")
	}
	wide := 0
	for _, t := range list {
		wide = max(wide, len(t.Name))
	}
	for _, t := range list {
		fmt.Fprintln(r.Stdout, strings.TrimRight(fmt.Sprintf("%-*s  %s", wide, t.Name, t.Summary()), " "))
	}
}

func (r Run) showJSON(list []arguments.Tool) int {
	enc := json.NewEncoder(r.Stdout)
	for _, t := range list {
		if enc.Encode(t) != nil {
			return exitFailed
		}
	}
	return exitOK
}
