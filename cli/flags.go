package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/cli/app"
	"berth/cli/data"
	"berth/cli/flags"
	"berth/cli/term"
	"berth/cli/tools"
	"berth/client"
	"berth/proto"
)

// containerFlags describe the container to create. Sizes and times stay as typed until request, which names the flag
// in its errors.
type containerFlags struct {
	image, name, workspace      string
	snapshot                    string
	sudo                        bool
	confinement                 flags.Confinement
	network                     flags.Network
	tools                       tools.Flags
	labels, env, secrets, files []string
	secretHosts                 []string
	idle, lifetime              time.Duration
	lease                       flags.Lease
	typed                       *pflag.FlagSet // the flags that were given
}

// register adds the flags to a command. They have docker's names where docker has the same option. Zero values mean
// the daemon's defaults. These differ between daemons, so the help does not repeat them.
func (f *containerFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.typed = fs
	fs.StringVar(&f.image, "image", "", "image, as listed by 'berth image ls' (default: the daemon's)")
	fs.StringVar(&f.snapshot, "snapshot", "", "begin with the files of this snapshot in place of an image")
	fs.StringVar(&f.name, "name", "", "name and host name, which no other container of yours may have")
	fs.StringArrayVarP(&f.labels, "label", "l", nil, "label, key=value (may be repeated)")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable of its commands: NAME=value, or NAME for its "+
		"value here (may be repeated)")
	fs.StringArrayVar(&f.secrets, "secret", nil, flags.SecretUsage)
	fs.StringArrayVar(&f.secretHosts, "secret-host", nil, flags.SecretHostUsage)
	f.confinement.Register(cmd)
	fs.BoolVar(&f.sudo, "sudo", false, "let its user become its root by sudo")
	fs.DurationVar(&f.idle, "idle", 0, "stop it after this much idle time, such as 5m")
	fs.DurationVar(&f.lifetime, "lifetime", 0, "delete it this long after its creation, such as 24h")
	f.lease.Register(cmd)
	fs.StringArrayVar(&f.files, "file", nil, "file for $INPUT_DIR: the ID of a stored file, or a local file to upload "+
		"(may be repeated)")
	f.network.Register(cmd)
	f.tools.Register(cmd)
	fs.StringVar(&f.workspace, "workspace", "", "existing workspace to use")
}

// request builds the request. It uploads local files first and returns their IDs.
func (f *containerFlags) request(ctx context.Context, a *app.App, c *client.Client) (req proto.CreateContainer,
	uploaded []string, err error) {
	req = proto.CreateContainer{Image: f.image, Sudo: f.sudo, WorkspaceID: f.workspace, Name: f.name,
		Snapshot: f.snapshot, Network: f.network.Request()}
	// Files come last, so that a mistake in another flag is found before an upload.
	for _, step := range []func() error{
		func() error {
			return flags.NoZeros(f.typed, map[string]bool{"idle": f.idle == 0, "lifetime": f.lifetime == 0})
		},
		func() error {
			c, err := f.confinement.Request()
			req.RuntimeClass, req.Limits = c.RuntimeClass, c.Limits
			return err
		},
		func() (err error) { req.IdleTimeoutSeconds, err = term.ParseSeconds("idle", f.idle); return err },
		func() (err error) {
			req.MaxLifetimeSeconds, err = term.ParseSeconds("lifetime", f.lifetime)
			return err
		},
		func() (err error) { req.Lease, err = f.lease.Request(); return err },
		func() (err error) { req.Labels, err = flags.Labels(f.labels); return err },
		func() (err error) { req.Env, err = flags.Env(f.env); return err },
		func() (err error) { req.Secrets, err = flags.Secrets(f.secrets); return err },
		func() (err error) { req.CodeTools, err = f.tools.Request(); return err },
		func() (err error) {
			req.NetworkSecrets, err = flags.SecretHosts(f.secretHosts, req.Secrets)
			return err
		},
		func() (err error) { req.Files, uploaded, err = f.store(ctx, a, c); return err },
	} {
		if err := step(); err != nil {
			return req, uploaded, err
		}
	}
	return req, uploaded, nil
}

// store uploads the arguments that are local files. It returns uploaded also with an error, so that the caller can
// delete these files.
func (f *containerFlags) store(ctx context.Context, a *app.App, c *client.Client) (ids, uploaded []string, err error) {
	for _, name := range f.files {
		if proto.ValidID(proto.FilePrefix, name) {
			ids = append(ids, name)
			continue
		}
		file, err := data.UploadFile(ctx, a, c, name, client.Upload{})
		if err != nil {
			return ids, uploaded, err
		}
		ids, uploaded = append(ids, file.ID), append(uploaded, file.ID)
	}
	return ids, uploaded, nil
}

// execFlags say which command to run and how.
type execFlags struct {
	detachKeys               string // as typed
	leave                    []byte // the same, as read from a terminal; set by command
	interactive, tty, detach bool
	text, cwd, user, job     string
	shell, key               string   // only for exec
	env, secrets             []string // only for exec; for run they are the container's
	timeout                  time.Duration
	maxOutput                string
}

// register adds the flags to a command. The environment is not included: for `run` it belongs to the container, for
// `exec` to the command.
func (f *execFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SetInterspersed(false) // arguments after the command's name belong to the command
	fs.BoolVarP(&f.interactive, "interactive", "i", false, "forward standard input")
	fs.BoolVarP(&f.tty, "tty", "t", false, "allocate a terminal")
	fs.BoolVarP(&f.detach, "detach", "d", false, "run it in the background")
	fs.StringVarP(&f.text, "bash", "c", "", "run this text with bash instead of a program")
	fs.StringVarP(&f.cwd, "workdir", "w", "", "working directory; relative to the job's directory")
	fs.StringVarP(&f.user, "user", "u", "", "user or root (default user), or another user of the container: "+
		"NAME[:GROUP], by name or number")
	fs.StringVar(&f.job, "job", "", "job of the command")
	fs.DurationVar(&f.timeout, "timeout", 0, "time limit (default: the daemon's, usually 5m; 24h with -t, and none "+
		"with -d)")
	registerDetachKeys(cmd, &f.detachKeys)
	fs.StringVar(&f.maxOutput, "max-output", "", "how much of each stream the daemon keeps (default 4m)")
}

// Defaults for a command with a terminal: the longest timeout that the daemon allows, since its user can end it, and
// enough kept output that a briefly slow terminal misses nothing.
const (
	longestTimeout = 24 * time.Hour
	keptOutput     = 4 << 20
)

// command builds the command from the flags and arguments.
func (f *execFlags) command(args []string) (cmd proto.Cmd, err error) {
	cmd = proto.Cmd{
		JobID: f.job, Cwd: f.cwd, User: f.user, Shell: f.shell, Background: f.detach, IdempotencyKey: f.key,
		TimeoutSeconds: f.timeout.Seconds(), MaxOutputBytes: keptOutput,
	}
	if cmd.Env, err = flags.Env(f.env); err != nil {
		return cmd, err
	}
	if cmd.Secrets, err = flags.Secrets(f.secrets); err != nil {
		return cmd, err
	}
	// A command with a key continues without us, and must not block when no client reads its output.
	if !f.detach && f.key == "" {
		cmd.OnOutputLimit = proto.OutputWait // piped output must be complete
	}
	// Other commands get the daemon's default, so that the operator's setting applies to scripts too.
	if f.timeout == 0 && f.tty {
		cmd.TimeoutSeconds = longestTimeout.Seconds()
	}
	if f.maxOutput != "" {
		if cmd.MaxOutputBytes, err = term.ParseSize("max-output", f.maxOutput); err != nil {
			return cmd, err
		}
	}
	if err := f.terminal(&cmd); err != nil {
		return cmd, err
	}
	if f.leave, err = parseDetachKeys(f.detachKeys); err != nil {
		return cmd, err
	}
	return cmd, f.program(&cmd, args)
}

// program sets the program: a text for bash, or a program with arguments and no shell, which needs no quoting.
func (f *execFlags) program(cmd *proto.Cmd, args []string) error {
	if len(args) > 0 && args[0] == "--" { // "exec CONTAINER -- ls": many users type it, and no program is called "--"
		args = args[1:]
	}
	switch {
	case f.text != "" && len(args) > 0:
		return proto.Errorf(proto.InvalidArgument, "", "bash", "-c takes the whole command; %q is too much", args[0])
	case f.text != "":
		cmd.Command = f.text
	case len(args) == 0:
		return proto.Errorf(proto.InvalidArgument, "", "command", "there is nothing to run; name a program, or give "+
			"text for bash with -c")
	case f.shell != "": // a shell reads text
		cmd.Command = term.Quote(args)
	default:
		cmd.Argv = args
	}
	return nil
}

// terminal sets where the command reads and writes. Without -t the command gets pipes, so that its two streams stay
// separate.
func (f *execFlags) terminal(cmd *proto.Cmd) error {
	if f.detach && (f.tty || f.interactive) {
		return proto.Errorf(proto.InvalidArgument, "", "detach", "a command in the background has neither terminal "+
			"nor standard input; leave out -i and -t")
	}
	if f.shell != "" && (f.tty || f.interactive) {
		return proto.Errorf(proto.InvalidArgument, "", "shell", "a command in a named shell has neither terminal "+
			"nor standard input; leave out -i and -t")
	}
	cmd.OpenStdin = f.interactive
	if !f.tty {
		return nil
	}
	cmd.Detach = true // its user may come back to it
	// Raw mode and window size need a terminal. A pipe as the keyboard is nearly always a mistake in a script.
	if f.interactive && !term.IsTerminal(os.Stdin) {
		return proto.Errorf(proto.InvalidArgument, "", "tty", "standard input is not a terminal; leave out -t")
	}
	size := term.WindowSize()
	cmd.TTY = &size
	// Programs draw according to TERM, and this terminal displays the result.
	if _, set := cmd.Env["TERM"]; !set && os.Getenv("TERM") != "" {
		cmd.Env["TERM"] = os.Getenv("TERM")
	}
	return nil
}

// completeContainerFlags adds completion for the container flags. Registering fails only for an unknown flag.
func completeContainerFlags(a *app.App, cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("image", a.CompleteImages())
	_ = cmd.RegisterFlagCompletionFunc("workspace", a.CompleteWorkspaces())
}
