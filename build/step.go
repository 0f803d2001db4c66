package build

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/build/wire"
	"berth/egress"
	"berth/guest/client"
	guestwire "berth/guest/wire"
	"berth/proto"
	"berth/session/loopback"
)

// endTimeout bounds the removal of a step's sandbox.
const endTimeout = time.Minute

// runStep runs one command in a sandbox and answers with its output. The command ends with the request.
func (r *runningBuild) runStep(w http.ResponseWriter, req *http.Request) error {
	var step wire.Step
	if err := decode(w, req, &step); err != nil {
		return err
	}
	if err := r.secrets.fill(&step); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	select {
	case r.step <- struct{}{}:
		defer func() { <-r.step }()
	case <-ctx.Done():
		return ctx.Err()
	}
	sandbox, err := r.cfg.Machine.StartStep(ctx, r.options.Class, r.options.Limits, step.Trees)
	if err != nil {
		return err
	}
	out := &frames{w: w, rc: http.NewResponseController(w)}
	stop := r.watchDisk(ctx, step.Trees, cancel)
	exit, err := r.exec(ctx, sandbox, step, out)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	end, ended := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer ended()
	if endErr := sandbox.End(end); endErr != nil {
		r.cfg.Log.Error("removing the sandbox of a build's step", "build", r.entry.ID, "err", endErr)
		err = cmp.Or(err, endErr)
	}
	stop()
	if err != nil {
		exit = wire.Exit{Error: err.Error(), Cause: string(proto.CodeOf(err))}
		var known *proto.Error
		if errors.As(err, &known) {
			exit.Error = known.Message
		}
	}
	text, err := json.Marshal(exit)
	if err != nil {
		return err
	}
	out.write(wire.FrameExit, text)
	return nil
}

// frames writes frames, each sent at once. A builder that has gone ends the request, and with it the step.
type frames struct {
	mu sync.Mutex // held while a frame is written
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (f *frames) write(kind byte, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	const most = 256 << 10
	for first := true; first || len(data) > 0; first = false {
		part := data[:min(len(data), most)]
		data = data[len(part):]
		if wire.WriteFrame(f.w, kind, part) != nil {
			return
		}
	}
	_ = f.rc.Flush()
}

// exec runs the command in a started sandbox.
func (r *runningBuild) exec(ctx context.Context, sandbox Step, step wire.Step, out *frames) (exit wire.Exit,
	err error) {
	guest := client.NewClient(sandbox.Dial)
	defer guest.Close()
	ports := loopback.NewPorts(ctx, func(fn func()) error { go fn(); return nil })
	defer ports.Close()
	env := step.Env
	if r.gate != nil && !step.NoNetwork {
		if err := ports.Serve(ctx, listenIn(guest), loopback.ProxyPort, r.gate); err != nil {
			return exit, err
		}
		env = withProxy(env)
	}
	p, err := guest.Start(ctx, guestwire.Command{Argv: []string{sandbox.Guest(), guestwire.StepCommandFlag}, Dir: "/",
		User: proto.UserRoot, Stdin: true}, func(s proto.Stream, _ int64, b []byte) {
		if s == proto.Stderr {
			out.write(wire.FrameStderr, b)
		} else {
			out.write(wire.FrameStdout, b)
		}
	})
	if err != nil {
		return exit, err
	}
	defer p.Drop()
	text, err := json.Marshal(guestwire.StepCommand{Argv: step.Argv, Env: env, Dir: step.Dir, User: step.User})
	if err != nil {
		return exit, err
	}
	// A command that ends at once does not read this.
	if _, err := p.Write(ctx, text); err == nil {
		_ = p.CloseStdin()
	}
	ended, err := p.Wait(ctx)
	if err != nil {
		return exit, err
	}
	if ended.OutOfMemory {
		return exit, proto.Errorf(proto.QuotaExceeded, "build", "memory_bytes", "the step needs more than %d MiB of "+
			"memory; ask for more memory_bytes", r.options.Limits.MemoryBytes>>20)
	}
	return wire.Exit{Code: ended.Code}, nil
}

// withProxy adds the proxy's variables to an environment. Yarn from version 2 has its own: it reads no others.
func withProxy(env []string) []string {
	all := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		all[name] = value
	}
	loopback.AddProxy(all)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		if _, said := all["YARN_"+name]; !said && all[name] != "" {
			all["YARN_"+name] = all[name]
		}
	}
	env = nil
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}

// listenIn returns a function that opens listeners in a guest.
func listenIn(guest *client.Client) loopback.Listen {
	return func(ctx context.Context, port uint16) (loopback.Listener, error) {
		l, err := guest.Listen(ctx, port)
		if err != nil {
			return nil, err
		}
		return stepListener{l}, nil
	}
}

// A stepListener is a client.Listener in the form that package loopback needs.
type stepListener struct{ *client.Listener }

// Await implements loopback.Listener.
func (l stepListener) Await(ctx context.Context) (egress.Conn, error) {
	c, err := l.Listener.Await(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// diskEvery is the shortest interval between two looks at what a step has written. A look may take a twentieth of the
// time.
const diskEvery = time.Second

// watchDisk cancels a step when the build has written more than its limit. No quota of the file system holds for the
// layers of images, so a fast step can exceed the limit for an interval; Images.KeepReserve bounds it then.
func (r *runningBuild) watchDisk(ctx context.Context, trees []wire.Tree, cancel context.CancelCauseFunc) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	look := func() time.Duration {
		began := time.Now()
		bytes := writtenIn(ctx, trees)
		r.mu.Lock()
		before := r.disk
		r.mu.Unlock()
		if most := r.options.Limits.DiskBytes; before+bytes > most {
			cancel(proto.Errorf(proto.QuotaExceeded, "build", "disk_bytes", "the build has written more than %d MiB; "+
				"ask for more disk_bytes", most>>20))
		}
		return time.Since(began)
	}
	go func() {
		defer close(done)
		for wait := diskEvery; ; {
			select {
			case <-time.After(wait):
				wait = max(diskEvery, 20*look())
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
		bytes := writtenIn(context.WithoutCancel(ctx), trees)
		r.mu.Lock()
		r.disk += bytes
		r.mu.Unlock()
	}
}

// writtenIn returns the size of the writable trees of a step but its caches, in bytes on disk.
func writtenIn(ctx context.Context, trees []wire.Tree) (bytes int64) {
	for i, t := range trees {
		dir := t.Upper
		if dir == "" && !t.ReadOnly {
			dir = t.Dir
		}
		if dir == "" || t.ReadOnly && i > 0 {
			continue
		}
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error { // files come and go meanwhile
			var st unix.Stat_t
			if err == nil && unix.Lstat(path, &st) == nil {
				bytes += st.Blocks * 512
			}
			return ctx.Err()
		})
	}
	return bytes
}
