// Package pid1 is the guest: the program that runs as PID 1 of a container. It serves the daemon's requests: it runs
// commands, connects their descriptors, and keeps commands and shells that outlive a connection. The processes
// themselves are guest/proc's, files are guest/fs's. The program berth-guest calls Serve. Both ends of a connection
// share the package guest/wire. The daemon's end is guest/client, which this package does not link.
package pid1

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/forward"
	"berth/guest/fs"
	"berth/guest/proc"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/guest/zygote"
	"berth/proto"
)

// ServerOptions configure Serve.
type ServerOptions struct {
	Log       *slog.Logger // default: none
	Version   string       // sent in Hello
	Workspace string       // default "/workspace"
	UID, GID  int          // of "user"; default 1000
	Env       []string     // variables that commands inherit, such as the image's PATH
	// directory for the pipes of persistent shells; default: the first usable one of /dev/shm, /tmp, /run, /var/tmp
	Scratch string
	// wait for all children and adopt orphans; for PID 1. No other code in the process may wait then
	Init bool

	// ZygoteRest is how long a zygote lives without a command; default 30 s. A zygote starts when two of its commands
	// come within ZygoteRest.
	ZygoteRest time.Duration
	NoZygotes  bool // execute the program of each command

	// Home, if set, is called once on the thread that starts all processes, before the first.
	Home func()
}

// A Server is a running guest.
type Server struct {
	opt     ServerOptions
	log     *slog.Logger
	ids     user.Users
	hello   wire.Hello
	bash    string // customary path of bash; "" if there is none
	procs   *proc.Table
	fs      *fs.FS
	zygotes *zygote.Zygotes
	scratch scratch

	mu     sync.Mutex // guards shells
	shells map[string]*shell

	keeps         *keptCommands
	ports         forward.Ports
	wg            sync.WaitGroup // connections and their commands
	shellCleanups sync.WaitGroup // persistent shells
}

// Serve answers requests from ln until ctx ends. Then it kills all processes that it started, and returns nil. PID 1
// calls it on its main thread.
func Serve(ctx context.Context, ln net.Listener, opt ServerOptions) (err error) {
	s := newServer(opt)
	if opt.Home != nil {
		opt.Home()
	}
	s.procs.Serve(func() { err = s.run(ctx, ln) })
	s.procs.Close()
	return err
}

// run answers requests until ctx ends, and then ends what is left.
func (s *Server) run(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = ln.Close() })
	err := s.accept(ctx, ln)
	cancel()
	s.closeKept()
	s.wg.Wait()
	s.closeShells()
	s.zygotes.Close()
	s.shellCleanups.Wait()
	s.procs.KillRest()
	s.scratch.remove()
	return err
}

// customBash is the shell that lists of users usually name.
const customBash = "/bin/bash"

func newServer(opt ServerOptions) *Server {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.Workspace = cmp.Or(opt.Workspace, "/workspace")
	opt.UID = cmp.Or(opt.UID, 1000)
	opt.GID = cmp.Or(opt.GID, opt.UID)
	opt.ZygoteRest = cmp.Or(opt.ZygoteRest, 30*time.Second)
	ids := user.NewUsers(opt.UID, opt.GID)
	s := &Server{
		opt: opt, log: opt.Log, ids: ids, procs: proc.NewTable(ids, opt.Init),
		shells: map[string]*shell{}, keeps: newKeptCommands(), scratch: scratch{want: opt.Scratch},
	}
	s.fs = fs.NewFS(opt.Workspace, ids, s.mappings)
	s.zygotes = zygote.New(zygote.Options{Table: s.procs, Log: opt.Log, Rest: opt.ZygoteRest,
		Off: opt.NoZygotes || !opt.Init})
	if _, err := executable(customBash); err == nil {
		s.bash = customBash
	}
	if opt.Init {
		// The starter of PID 1 may have left it descriptors that commands must not get.
		_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	}
	s.hello = wire.Hello{Ping: true, FileCalls: wire.FileCalls, Boot: random(), Version: opt.Version, PID: os.Getpid(),
		StartedAt: proto.At(time.Now()), Kernel: kernel()}
	return s
}

// accept serves connections until the listener is closed.
func (s *Server) accept(ctx context.Context, ln net.Listener) error {
	for {
		nc, err := ln.Accept()
		if ctx.Err() != nil {
			if nc != nil {
				_ = nc.Close()
			}
			return nil
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			// Out of descriptors or memory, which is temporary. A guest goes on.
			s.log.Warn("accepting a connection", "err", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.wg.Go(func() { s.serve(ctx, wire.NewConn(nc, true)) })
	}
}

// serve answers the requests of one connection.
func (s *Server) serve(ctx context.Context, c *wire.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	defer s.survive(c)
	k := &caller{s: s, conn: c}
	for ctx.Err() == nil {
		kind, body, err := c.ReadMessage(wire.MaxRequest)
		if err == nil {
			err = k.handle(ctx, kind, body)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				s.log.Debug("connection ended", "err", err)
			}
			break
		}
		if k.exec == nil {
			c.Trim()
		}
	}
	wire.CloseAll(c.Descriptors())
	k.hangUp()
}

// survive recovers from a panic in the goroutine of a request and closes the caller's connection. A panic must not
// end PID 1, since all processes of the container would die with it.
func (s *Server) survive(c *wire.Conn) {
	if p := recover(); p != nil {
		s.log.Error("a request failed badly", "panic", p, "stack", string(debug.Stack()))
		_ = c.Close()
	}
}

// A caller is the state of one connection. It runs one command at a time.
type caller struct {
	s    *Server
	conn *wire.Conn
	exec *execution           // the latest command, which may have ended
	quit bool                 // the command ends with the connection, although it is kept
	link atomic.Pointer[link] // to the latest command, if it is kept
}

// handle handles one frame. An error ends the connection.
func (k *caller) handle(ctx context.Context, kind wire.FrameKind, body []byte) error {
	if kind != wire.FrameRequest && kind != wire.FramePing {
		return k.control(kind, body)
	}
	if k.busy() {
		return wire.ErrFrame
	}
	if kind == wire.FramePing {
		return k.conn.Send(wire.FramePong, []byte(k.s.hello.Boot))
	}
	k.exec = nil
	k.link.Store(nil)
	var req wire.Request
	if err := req.Parse(body); err != nil {
		return err
	}
	// Descriptors arrive with the first bytes of the request or not at all. Reading an earlier frame may have
	// received them already, so no code before this touches them.
	fds := k.conn.Descriptors()
	if req.Op == wire.OpExec {
		return k.startCommand(&req, fds)
	}
	defer wire.CloseAll(fds)
	switch req.Op {
	case wire.OpListen:
		return k.s.ports.Serve(ctx, k.conn, req.Port, &k.s.wg)
	case wire.OpDial:
		return forward.Dial(k.conn, req.Port, req.Handover)
	case wire.OpIdle:
		return k.idle()
	case wire.OpWatchPorts:
		return k.watchPorts(ctx)
	}
	return k.answer(&req, fds)
}

// busy reports whether the end of the latest command was not sent yet.
func (k *caller) busy() bool {
	if k.exec == nil {
		return false
	}
	if l := k.link.Load(); l != nil {
		return !l.told.Load()
	}
	return !k.exec.ending.Load()
}

// answer handles a request that is complete when answer returns.
func (k *caller) answer(req *wire.Request, fds []int) error {
	switch req.Op {
	case wire.OpAttach:
		return k.attach(req)
	case wire.OpClaim:
		return k.conn.SendJSON(wire.FrameReply, k.s.claim(req.IDs))
	case wire.OpForget:
		return k.reply(nil, k.s.forgetKept(req.IDs))
	case wire.OpHello:
		return k.conn.SendJSON(wire.FrameReply, k.s.answerHello(req, fds))
	case wire.OpPorts:
		list, err := k.s.procs.Listening()
		return k.reply(list, err)
	case wire.OpShells:
		return k.conn.SendJSON(wire.FrameReply, k.s.shellList())
	case wire.OpCloseShell:
		return k.reply(nil, k.s.closeShell(req.Name))
	}
	id, err := k.s.ids.Named(req.As)
	if err != nil {
		return k.reply(nil, err)
	}
	return k.s.fs.Serve(k.conn, id, req)
}

// reply sends v, or err if it is not nil.
func (k *caller) reply(v any, err error) error { return k.conn.SendReply(v, err) }

// answerHello describes the guest. It writes to the descriptor of the request, to prove that descriptors can be
// passed.
func (s *Server) answerHello(req *wire.Request, fds []int) wire.Hello {
	h := s.hello
	if req.Pipes == 1 && len(fds) == 1 {
		_, err := unix.Write(fds[0], []byte{1})
		h.Pipes = err == nil
	}
	return h
}

// A scratch is a directory that only root may change and every user may traverse.
type scratch struct {
	want string
	mu   sync.Mutex
	dir  string
}

// path returns the directory, and creates it at the first call.
func (s *scratch) path() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir != "" {
		return s.dir, nil
	}
	places := []string{"/dev/shm", "/tmp", "/run", "/var/tmp"}
	if s.want != "" {
		places = []string{s.want}
	}
	var last error
	for _, place := range places {
		dir, err := os.MkdirTemp(place, ".berth-")
		if err == nil {
			err = os.Chmod(dir, 0o711)
		}
		if err == nil {
			s.dir = dir
			return dir, nil
		}
		last = err
	}
	return "", wire.FileError("shell", filepath.Dir(places[0]), last)
}

func (s *scratch) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
		s.dir = ""
	}
}

// random returns 128 random bits in hex.
func random() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// kernel returns the name and release of the kernel.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}
