package build

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/build/wire"
	"berth/egress"
	"berth/proto"
	"berth/session/loopback"
)

// builderLimits are those of the builder program itself. Steps have their own.
var builderLimits = proto.Limits{CPUs: 2, MemoryBytes: 1 << 30, PIDs: 1024, DiskBytes: 1 << 30, OpenFiles: 4096}

const (
	// usageFile has the size of a cache after the last build.
	usageFile = "usage.json"
	// maxEvent bounds a line of the builder, in bytes.
	maxEvent = 4 << 20
	// maxSaid bounds what is kept of the builder's standard error, in bytes.
	maxSaid = 16 << 10
	// stopGrace is how long a builder may take to end that has closed its output, or that is told to end. It then
	// removes what a cancelled build has written so far.
	stopGrace = 10 * time.Second
)

// A runningBuild is one run of the builder.
type runningBuild struct {
	*Builds
	ctx     context.Context // of the build's span
	entry   *entry
	options proto.BuildOptions
	emit    func(proto.BuildEvent)
	scratch string
	gate    loopback.Service // nil: no network
	secrets *buildSecrets
	step    chan struct{} // held by the step that runs, so that the limits hold for the build

	mu     sync.Mutex // guards what follows, and is held during emit
	steps  map[string]*buildStep
	broken *buildStep // the step that failed first; nil: none
	failed *wire.Failed
	image  proto.Image
	disk   int64 // bytes that ended steps have written
}

// run runs the builder over a stored context.
func (r *runningBuild) run(ctx context.Context, stored string) (proto.Image, error) {
	if r.cfg.Egress != nil && r.options.Network.Mode != "" {
		r.gate = r.cfg.Egress.Gate(nil, r.options.Network, nil, r.auditEgress)
	}
	sockets := filepath.Join(r.cfg.Sockets, r.entry.ID[len(proto.BuildPrefix):])
	if err := os.MkdirAll(sockets, 0o700); err != nil {
		return proto.Image{}, err
	}
	defer os.RemoveAll(sockets)
	job := r.job(stored)
	job.Containerd, job.Daemon = filepath.Join(sockets, "c"), filepath.Join(sockets, "d")
	stop, err := r.cfg.Machine.ServeContent(job.Containerd)
	if err != nil {
		return proto.Image{}, err
	}
	defer stop()
	closeServer, err := r.serve(ctx, job.Daemon)
	if err != nil {
		return proto.Image{}, err
	}
	err = r.runProgram(ctx, job)
	closeServer() // waits for steps, whose sandboxes are gone then
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return proto.Image{}, causeOf(ctx)
	case r.failed != nil:
		return proto.Image{}, r.failure()
	case err != nil:
		return proto.Image{}, err
	case r.image.Digest == "":
		return proto.Image{}, errors.New("the builder ended without an image")
	}
	return r.image, nil
}

// causeOf returns why a context ended.
func causeOf(ctx context.Context) error {
	var known *proto.Error
	if cause := context.Cause(ctx); errors.As(cause, &known) {
		return cause
	}
	return ctx.Err()
}

// job returns the builder's job but its sockets.
func (r *runningBuild) job(stored string) wire.Job {
	o := r.options
	return wire.Job{
		Namespace: r.cfg.Namespace, Snapshots: r.cfg.Snapshots, Owner: nameOf(r.entry.owner),
		Root: r.cacheDir(r.entry.owner), Context: stored, Scratch: r.scratch,
		Dockerfile: o.Dockerfile, Target: o.Target, Args: o.Args, Labels: o.Labels, NoCache: o.NoCache,
		Secrets:   r.secrets.words,
		KeepBytes: r.cfg.CacheBytes, KeepSeconds: int64(r.cfg.CacheAge / time.Second), Parallel: 4,
	}
}

// A BuildFailure is the error of a build that failed, with the place in the Dockerfile and the end of the output of the
// step that failed.
type BuildFailure struct {
	Err            *proto.Error
	Line, ExitCode int
	Step, Log      string
}

// Error returns the message.
func (f *BuildFailure) Error() string { return f.Err.Error() }

// Describe returns the error of a build as its caller gets it.
func Describe(err error) *proto.BuildError {
	said := &proto.BuildError{Error: proto.AsError(err)}
	var f *BuildFailure
	if errors.As(err, &f) {
		said.Line, said.ExitCode, said.Step, said.Log = f.Line, f.ExitCode, f.Step, f.Log
	}
	return said
}

// Unwrap returns the error without the place.
func (f *BuildFailure) Unwrap() error { return f.Err }

// failure returns the error for the caller. The caller of failure holds mu.
func (r *runningBuild) failure() error {
	f := r.failed
	code := proto.InvalidArgument // the Dockerfile, or a command of it
	if f.Cause != "" {
		code = proto.Code(f.Cause)
	}
	failure := &BuildFailure{Err: proto.Errorf(code, "build", r.options.Name, "%s", f.Message), Line: f.Line,
		ExitCode: f.Code}
	if r.broken != nil {
		failure.Step, failure.Log = r.broken.name, r.broken.lastLines()
	}
	return failure
}

// runProgram starts the builder, gives it the job and reads its events until it ends. ctx ends it.
func (r *runningBuild) runProgram(ctx context.Context, job wire.Job) error {
	if _, err := os.Stat(r.cfg.Program); err != nil {
		return proto.Errorf(proto.Unsupported, "build", "", "the daemon has no builder; put berth-builder into the "+
			"program directory, as make does")
	}
	cmd := exec.CommandContext(ctx, r.cfg.Program)
	cmd.Dir = r.scratch
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + r.scratch}
	// Its mounts end with it. A new session keeps an interrupt at the daemon's terminal away.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: syscall.CLONE_NEWNS}
	cmd.WaitDelay = stopGrace
	said := &tail{}
	cmd.Stderr = said
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = in.Close // see berth-builder
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the builder: %w", err)
	}
	defer in.Close() // at the latest, this ends the builder
	release, err := r.cfg.Machine.Confine(cmd.Process.Pid, r.entry.ID, builderLimits)
	if err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(fmt.Errorf("confining the builder: %w", err), cmd.Wait())
	}
	defer release()
	if err := json.NewEncoder(in).Encode(job); err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(fmt.Errorf("giving the builder its job: %w", err), cmd.Wait())
	}
	readErr := r.readEvents(out)
	if readErr != nil {
		_ = cmd.Process.Kill()
	}
	err = errors.Join(readErr, cmd.Wait())
	if err != nil && r.failed == nil && ctx.Err() == nil {
		r.cfg.Log.Error("a builder ended", "build", r.entry.ID, "err", err, "said", said.String())
		return proto.Errorf(proto.Internal, "build", r.options.Name, "the builder ended before the build; it may have "+
			"needed more than its %d MiB of memory; the daemon's log has more", builderLimits.MemoryBytes>>20)
	}
	if text := said.String(); text != "" {
		r.cfg.Log.Debug("a builder has ended", "build", r.entry.ID, "said", text)
	}
	return nil
}

// A tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-maxSaid):]
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.text)) }

// readEvents reads the builder's lines to their end.
func (r *runningBuild) readEvents(out io.Reader) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), maxEvent)
	for lines.Scan() {
		var ev wire.Event
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			return fmt.Errorf("reading the builder's events: %w", err)
		}
		r.take(ev)
	}
	return lines.Err()
}

// take passes on one event of the builder.
func (r *runningBuild) take(ev wire.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ev.Vertex != nil:
		r.takeVertex(ev.Vertex)
	case ev.Status != nil:
		r.emit(proto.BuildEvent{Type: proto.BuildProgress, Progress: &proto.BuildProgressPart{
			Step: r.stepOf(ev.Status.Vertex).number, Item: ev.Status.Item, Done: ev.Status.Done,
			Total: ev.Status.Total}})
	case ev.Log != nil:
		stream := proto.Stdout
		if ev.Log.Stream == 2 {
			stream = proto.Stderr
		}
		step := r.stepOf(ev.Log.Vertex)
		step.write(stream, ev.Log.Data)
		r.emit(proto.BuildEvent{Type: proto.BuildLog, Log: &proto.BuildLogPart{Step: step.number,
			Stream: stream.String(), Data: strings.ToValidUTF8(string(ev.Log.Data), "\uFFFD")}})
	case ev.Warning != "":
		r.emit(proto.BuildEvent{Type: proto.BuildWarning, Warning: ev.Warning})
	case ev.Cache != nil:
		usage := proto.BuildCache{Bytes: ev.Cache.Bytes, Entries: ev.Cache.Entries}
		if text, err := json.Marshal(usage); err == nil {
			// Only for display: a torn file counts as empty.
			_ = os.WriteFile(filepath.Join(r.cacheDir(r.entry.owner), usageFile), text, 0o600)
		}
		r.emit(proto.BuildEvent{Type: proto.BuildCached, Cache: &usage})
	case ev.Failed != nil:
		r.failed = ev.Failed
	}
}

// serve answers the builder on a socket until the returned function is called.
func (r *runningBuild) serve(ctx context.Context, socket string) (stop func(), err error) {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var handlers sync.WaitGroup
	mux := http.NewServeMux()
	handle := func(path string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, req *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			if err := h(w, req); err != nil {
				r.refuse(w, err)
			}
		})
	}
	handle(wire.PathImage, r.getImage)
	handle(wire.PathStep, r.runStep)
	handle(wire.PathDone, r.nameImage)
	handle(wire.PathProxy, r.tunnel)
	srv := &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // ends with Close
	}()
	return func() {
		cancel()
		_ = srv.Close()
		<-done
		handlers.Wait()
	}, nil
}

// refuse answers with an error.
func (r *runningBuild) refuse(w http.ResponseWriter, err error) {
	var known *proto.Error
	if !errors.As(err, &known) {
		if !errors.Is(err, context.Canceled) {
			r.cfg.Log.Error("building an image", "build", r.entry.ID, "err", err)
		}
		known = proto.Errorf(proto.CodeOf(err), "", "", "the daemon could not do its part; its log has more")
	}
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(map[string]string{"code": string(known.Code), "message": known.Message})
}

// maxRequest bounds a request of the builder, in bytes.
const maxRequest = 16 << 20

func decode(w http.ResponseWriter, req *http.Request, into any) error {
	return json.NewDecoder(http.MaxBytesReader(w, req.Body, maxRequest)).Decode(into)
}

// getImage answers where a base image is. It gets the image from its registry if it is not here, or if the build asks
// for that.
func (r *runningBuild) getImage(w http.ResponseWriter, req *http.Request) error {
	var wanted wire.Wanted
	if err := decode(w, req, &wanted); err != nil {
		return err
	}
	ctx := req.Context()
	img, err := r.cfg.Images.Resolve(ctx, wanted.Ref)
	if proto.CodeOf(err) == proto.NotFound || err == nil && r.options.Pull {
		pulled, pullErr := r.cfg.Images.Pull(ctx, wanted.Ref, r.reportImage)
		if err != nil || pullErr == nil {
			img, err = pulled, pullErr
		}
	}
	if err != nil {
		return err
	}
	found, err := r.cfg.Images.Manifest(ctx, img.Digest)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(found)
}

// reportImage reports the progress of a base image, or of the built one.
func (r *runningBuild) reportImage(p proto.ImageProgress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emit(proto.BuildEvent{Type: proto.BuildProgress, Progress: &proto.BuildProgressPart{
		Item: strings.TrimSpace(p.Stage + " " + p.Item), Done: p.Done, Total: p.Total}})
}

// nameImage names the built image.
func (r *runningBuild) nameImage(w http.ResponseWriter, req *http.Request) error {
	var built wire.Built
	if err := decode(w, req, &built); err != nil {
		return err
	}
	img, err := r.cfg.Images.NameBuilt(req.Context(), r.options.Name, built, r.reportImage)
	for _, name := range r.options.MoreNames {
		if err == nil {
			_, err = r.cfg.Images.NameBuilt(req.Context(), name, built, r.reportImage)
		}
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.image = img
	r.mu.Unlock()
	return json.NewEncoder(w).Encode(struct{}{})
}

// tunnel connects the builder to the proxy of the build's network, for files of ADD.
func (r *runningBuild) tunnel(w http.ResponseWriter, req *http.Request) error {
	if r.gate == nil {
		return proto.Errorf(proto.PermissionDenied, "", "network", "the build has no network; ask for one, with the "+
			"hosts that it may reach")
	}
	leave, err := r.gate.Enter(req.Context())
	if err != nil {
		return err
	}
	defer leave()
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
		"Upgrade: berth-proxy\r\n\r\n"); err != nil {
		return nil // the builder is gone
	}
	r.gate.Serve(req.Context(), conn.(*net.UnixConn))
	return nil
}

// auditEgress audits a request of a step or of ADD that left the build, or was refused.
func (r *runningBuild) auditEgress(v egress.Report) {
	action := "egress.refuse"
	switch {
	case v.Began:
		action = "egress.begin"
	case v.Over:
		action = "egress.end"
	}
	r.cfg.Audit(proto.AuditEntry{Act: action, Outcome: v.Outcome, Actor: proto.ActorContainer, Owner: r.entry.owner,
		Item: r.entry.ID, Note: v.Note, Egress: &v.AuditEgress})
}
