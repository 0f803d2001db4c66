package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/buildkit/executor"
	resourcestypes "github.com/moby/buildkit/executor/resources/types"
	gatewaypb "github.com/moby/buildkit/frontend/gateway/pb"
	"github.com/moby/buildkit/solver/pb"

	"berth/build/wire"
)

// An executorOf has the daemon run commands, each in a sandbox over the file systems that BuildKit has prepared.
type executorOf struct{ daemon *daemon }

// Run implements executor.Executor.
func (e *executorOf) Run(ctx context.Context, _ string, root executor.Mount, mounts []executor.Mount,
	process executor.ProcessInfo, started chan<- struct{}) (resourcestypes.Recorder, error) {
	if started != nil {
		close(started)
	}
	step, release, err := stepOf(ctx, root, mounts, process.Meta)
	defer release()
	if err != nil {
		return nil, err
	}
	return nil, e.run(ctx, step, process)
}

// Exec implements executor.Executor. Only frontends from images use it, and there are none.
func (e *executorOf) Exec(context.Context, string, executor.ProcessInfo) error {
	return errors.New("a step has one command")
}

// run sends a step to the daemon and copies its output.
func (e *executorOf) run(ctx context.Context, step wire.Step, process executor.ProcessInfo) error {
	answer, err := e.daemon.post(ctx, wire.PathStep, step)
	if err != nil {
		return err
	}
	defer answer.Close()
	for {
		kind, data, err := wire.ReadFrame(answer)
		if err != nil {
			return errors.Join(context.Cause(ctx), fmt.Errorf("running a step: %w", err))
		}
		switch kind {
		case wire.FrameStdout:
			_, err = process.Stdout.Write(data)
		case wire.FrameStderr:
			_, err = process.Stderr.Write(data)
		case wire.FrameExit:
			return exitOf(data)
		}
		if err != nil {
			return err
		}
	}
}

// exitOf returns how a step ended, as BuildKit expects it.
func exitOf(data []byte) error {
	var exit wire.Exit
	switch err := json.Unmarshal(data, &exit); {
	case err != nil:
		return err
	case exit.Error != "":
		return &daemonError{Code: exit.Cause, Message: exit.Error}
	case exit.Code != 0:
		return &gatewaypb.ExitError{ExitCode: uint32(exit.Code), Err: fmt.Errorf("exit code %d", exit.Code)}
	}
	return nil
}

// stepOf mounts nothing: it says what the daemon is to mount. The caller calls release, also after an error.
func stepOf(ctx context.Context, root executor.Mount, mounts []executor.Mount, meta executor.Meta) (step wire.Step,
	release func(), err error) {
	var releases []func() error
	release = func() {
		for _, r := range releases {
			_ = r() // BuildKit logs it
		}
	}
	step = wire.Step{Argv: meta.Args, Env: meta.Env, Dir: meta.Cwd, User: meta.User,
		NoNetwork: meta.NetMode == pb.NetMode_NONE}
	for _, m := range append([]executor.Mount{root}, mounts...) {
		tree, done, err := treeOf(ctx, m)
		if done != nil {
			releases = append(releases, done)
		}
		if err != nil {
			return step, release, err
		}
		step.Trees = append(step.Trees, tree)
	}
	step.Trees[0].Target = "/"
	return step, release, nil
}

// treeOf describes one mount.
func treeOf(ctx context.Context, m executor.Mount) (tree wire.Tree, release func() error, err error) {
	mountable, err := m.Src.Mount(ctx, m.Readonly)
	if err != nil {
		return tree, nil, err
	}
	if mountable, err = overlayOf(mountable); err != nil {
		return tree, nil, err
	}
	list, release, err := mountable.Mount()
	if err != nil {
		return tree, release, err
	}
	tree = wire.Tree{Target: m.Dest, Selector: m.Selector, ReadOnly: m.Readonly}
	if len(list) != 1 {
		return tree, release, fmt.Errorf("%d mounts make up %s", len(list), m.Dest)
	}
	if isSecret(list[0]) {
		tree.Secret, err = secretOf(list[0].Source)
		return tree, release, err
	}
	return tree, release, describeMount(&tree, list[0])
}

// isSecret reports whether a mount is a secret. BuildKit makes a file in memory for each, in a temporary directory.
func isSecret(m mount.Mount) bool {
	return m.Type == "bind" && strings.HasPrefix(m.Source, filepath.Join(os.TempDir(), "buildkit-secrets"))
}

// secretOf describes a secret. The file has the word that stands for it.
func secretOf(name string) (*wire.Secret, error) {
	word, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(name, &st); err != nil {
		return nil, err
	}
	return &wire.Secret{Word: string(word), UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o777}, nil
}

// describeMount puts a mount of containerd's into a tree.
func describeMount(tree *wire.Tree, m mount.Mount) error {
	switch m.Type {
	case "bind", "rbind":
		tree.Dir = m.Source
	case "tmpfs":
		tree.Memory = tmpfsSize(m.Options)
	case "overlay":
		for _, o := range m.Options {
			name, value, _ := strings.Cut(o, "=")
			switch name {
			case "lowerdir":
				tree.Lowers = strings.Split(value, ":")
			case "upperdir":
				tree.Upper = value
			case "workdir":
				tree.Work = value
			}
		}
	default:
		return fmt.Errorf("a mount of type %s", m.Type)
	}
	for _, o := range m.Options {
		tree.ReadOnly = tree.ReadOnly || o == "ro"
	}
	return nil
}

// tmpfsSize returns the size in the options of a tmpfs, or a small default.
func tmpfsSize(options []string) int64 {
	size := int64(64 << 20)
	for _, o := range options {
		if value, ok := strings.CutPrefix(o, "size="); ok {
			_, _ = fmt.Sscan(value, &size)
		}
	}
	return size
}
