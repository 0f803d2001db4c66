// Package buildstep becomes the command of one step of an image's build. The guest starts its own program again for
// that: the new process reads the command from its standard input, looks the user up in the image, switches to it and
// executes the program. It runs inside the step's sandbox with the rights of the sandbox's root, and trusts nothing of
// the image: whatever the image says decides only what the image's own command may do inside.
package buildstep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
)

// maxCommand bounds a command with its environment, in bytes.
const maxCommand = 16 << 20

// Exit statuses of shells for a program that cannot be run.
const (
	exitNoExec  = 126
	exitNoFound = 127
)

// Main becomes the command and never returns.
func Main() {
	code, err := become()
	fmt.Fprintln(os.Stderr, "berth:", err)
	os.Exit(code)
}

// become returns only if it fails, with the exit status.
func become() (int, error) {
	var cmd wire.StepCommand
	if err := json.NewDecoder(io.LimitReader(os.Stdin, maxCommand)).Decode(&cmd); err != nil {
		return exitNoExec, fmt.Errorf("reading the command: %w", err)
	}
	if len(cmd.Argv) == 0 {
		return exitNoExec, errors.New("the step has no command")
	}
	if err := nullInput(); err != nil {
		return exitNoExec, err
	}
	who, err := user.InImage("/", cmd.User)
	if err != nil {
		return exitNoExec, fmt.Errorf("user of the step: %w", err)
	}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	if err := os.MkdirAll(cmd.Dir, 0o755); err != nil {
		return exitNoExec, fmt.Errorf("making the working directory: %w", err)
	}
	if err := switchTo(who); err != nil {
		return exitNoExec, err
	}
	if err := os.Chdir(cmd.Dir); err != nil {
		return exitNoExec, err
	}
	env := environment(cmd.Env, who.Home)
	program, err := find(cmd.Argv[0], env)
	if err != nil {
		return exitNoFound, err
	}
	return exitNoExec, fmt.Errorf("running %s: %w", program, syscall.Exec(program, cmd.Argv, env))
}

// nullInput replaces the standard input, which the daemon has used for the command, by an empty one.
func nullInput() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	return unix.Dup3(int(null.Fd()), 0, 0)
}

// switchTo switches to a user. The kernel takes root's capabilities away.
func switchTo(who user.User) error {
	return errors.Join(syscall.Setgroups(who.Groups), syscall.Setgid(who.GID), syscall.Setuid(who.UID))
}

// environment returns env with a HOME and a PATH.
func environment(env []string, home string) []string {
	has := func(name string) bool {
		return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	}
	if !has("HOME") {
		env = append(env, "HOME="+home)
	}
	if !has("PATH") {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return env
}

// find returns the path of a program, in the PATH of env.
func find(program string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	for _, kv := range slices.Backward(env) {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			path := filepath.Join(dir, program)
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return path, nil
			}
		}
		break
	}
	return "", &exec.Error{Name: program, Err: exec.ErrNotFound}
}
