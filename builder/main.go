// Command berth-builder builds one image by BuildKit and ends. The daemon starts it for each build, in a cgroup with a
// memory limit: a Dockerfile may make its reader need any amount of memory, and a crash must not take the daemon along.
//
// It solves the graph, keeps the cache of one owner, and copies files. It runs none of the build's commands and opens
// no connection to any network: the daemon does both, see berth/build. What it stores is in the daemon's containerd.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	gatewaypb "github.com/moby/buildkit/frontend/gateway/pb"
	solvererrors "github.com/moby/buildkit/solver/errdefs"
	"github.com/sirupsen/logrus"

	"berth/build/wire"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println("berth-builder version", version)
		return
	}
	logrus.SetOutput(os.Stderr)
	logrus.SetLevel(logrus.WarnLevel)
	out := &events{w: json.NewEncoder(os.Stdout)}
	if err := run(context.Background(), out); err != nil {
		out.send(wire.Event{Failed: failed(err)})
		os.Exit(1)
	}
}

// version is set when the program is linked.
var version = "dev"

// run reads the job and builds.
func run(ctx context.Context, out *events) error {
	var job wire.Job
	in := json.NewDecoder(os.Stdin)
	if err := in.Decode(&job); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() { // the daemon keeps the pipe open as long as it wants the build
		_, _ = io.Copy(io.Discard, io.MultiReader(in.Buffered(), os.Stdin))
		cancel()
		time.AfterFunc(cancelGrace, func() { os.Exit(2) })
	}()
	b, err := open(ctx, job, out)
	if err != nil {
		return err
	}
	defer b.close()
	err = b.build(ctx)
	return errors.Join(err, b.prune(context.WithoutCancel(ctx)))
}

// cancelGrace is how long a cancelled build may take to remove what its steps have written so far. What it does not
// remove, the next build of the owner removes.
const cancelGrace = 8 * time.Second

// events writes progress, one line for each event.
type events struct {
	mu sync.Mutex // held while a line is written
	w  *json.Encoder
}

func (e *events) send(ev wire.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.w.Encode(ev) != nil {
		os.Exit(2) // the daemon is gone
	}
}

// failed describes an error for the caller.
func failed(err error) *wire.Failed {
	f := &wire.Failed{Message: err.Error()}
	var daemon *daemonError
	if errors.As(err, &daemon) {
		f.Message, f.Cause = daemon.Message, daemon.Code
	}
	var exit *gatewaypb.ExitError
	if errors.As(err, &exit) && daemon == nil {
		f.Code = int(exit.ExitCode)
	}
	for _, s := range solvererrors.Sources(err) {
		if len(s.Ranges) > 0 && s.Ranges[0].Start != nil {
			f.Line = int(s.Ranges[0].Start.Line)
		}
	}
	f.Message = reword(strings.TrimPrefix(f.Message, "failed to solve: "))
	return f
}

// rewordings are for messages of BuildKit that name what its user does not know, or no way out.
var rewordings = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`^failed to compute cache key: failed to calculate checksum of ref \S+: ("[^"]*"): not found$`),
		"$1 is not there, neither in the build context nor in the stage or image of --from; a .dockerignore leaves " +
			"files out"},
	{regexp.MustCompile(`^secret (\S+): not found$`),
		"a step mounts the secret $1, which the build does not have; give it with --secret id=$1, or as a part of " +
			"the request"},
	{regexp.MustCompile(`^no SSH key "(.*)" forwarded from the client$`),
		"RUN --mount=type=ssh: a build has no SSH agent; copy what the step needs into the build context"},
	{regexp.MustCompile(`^failed to load LLB: (network\.host|security\.insecure) is not allowed$`),
		"$1 is not allowed: a step is no more than a container"},
	{regexp.MustCompile(`^failed to load cache key: invalid response status (\d+)$`),
		"ADD: the address was answered with the status $1; 403 is also the answer for a host that the build may not " +
			"reach"},
}

// reword returns a message as it is for the caller.
func reword(message string) string {
	for _, r := range rewordings {
		if r.from.MatchString(message) {
			return r.from.ReplaceAllString(message, r.to)
		}
	}
	return message
}
