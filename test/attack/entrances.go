package attack

import (
	"context"
	"fmt"
	"strings"

	"berth/proto"
)

// The escapes of group 30 through things that the daemon itself starts or opens in a container: a working directory,
// the guest's program, and mount points.

// workingDirectories uses a command's cwd like CVE-2024-21626. A refusal and a start inside are both good: in gVisor
// such a descriptor belongs to gVisor.
func workingDirectories(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	refused, inside := 0, 0
	for fd := 3; fd < 16; fd++ {
		for _, self := range []string{"self", "thread-self", "1"} {
			res, err := t.Do(ctx, con.ID, proto.Cmd{
				// The root must be above the working directory, and both must exist.
				Argv: []string{"/bin/sh", "-c",
					`[ "$(stat -Lc %d:%i ../../../../../../../..)" = "$(stat -Lc %d:%i /)" ] && [ "$(stat -Lc %d:%i .)" != "" ]`},
				Cwd: fmt.Sprintf("/proc/%s/fd/%d", self, fd), User: proto.UserRoot, TimeoutSeconds: 20,
			})
			var end *proto.End
			if err == nil {
				end = res.Exec.End
			}
			switch {
			// A missing answer shows nothing about the attack.
			case err != nil && proto.CodeOf(err) == proto.Unavailable:
				return "", err
			case err != nil || end.Reason == proto.EndNotStarted:
				refused++
			case end.Reason == proto.EndExit && end.ReturnCode == 0:
				inside++
			default:
				return "", Breached("a command in /proc/%s/fd/%d was outside of the container's root: %s", self, fd,
					describe(res))
			}
		}
	}
	return fmt.Sprintf("%d were refused, %d began inside the container's root", refused, inside), nil
}

// selfExe is CVE-2019-5736 against the guest, which executes the programs of commands. All containers share one file
// of the guest, so writing to it in one container would affect the others.
func selfExe(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	before, err := t.Output(ctx, con.ID, proto.UserRoot, "sha256sum < /.berth/guest")
	if err != nil {
		return "", err
	}
	// The kernel executes the interpreter line, for any caller of the script.
	script := "#!/proc/self/exe\n"
	if _, err := t.FS(con.ID, proto.UserRoot).Write(ctx, "/tmp/interpreted", 0o755, strings.NewReader(script),
		int64(len(script))); err != nil {
		return "", err
	}
	// Meanwhile another command looks for a writable descriptor of the program. A running program cannot be written
	// to (ETXTBSY), so the moment is right after its end. The hunt tries continuously.
	hunt, err := t.Launch(ctx, con.ID, proto.Cmd{User: proto.UserRoot, TimeoutSeconds: 8, Command: `
		end=$((SECONDS + 5))
		while [ $SECONDS -lt $end ]; do
			for p in /proc/[0-9]*; do
				[ "$(readlink $p/exe 2>/dev/null)" = /.berth/guest ] || continue
				( : >> $p/exe ) 2>/dev/null && echo "wrote to $p/exe"
				( : >> /.berth/guest ) 2>/dev/null && echo "wrote to the guest"
			done
		done; true`})
	if err != nil {
		return "", err
	}
	for range 2 {
		for _, argv := range [][]string{{"/proc/self/exe", "/nowhere"}, {"/tmp/interpreted"},
			{"/proc/1/exe", "/nowhere"}, {"/.berth/guest", "/nowhere"}} {
			if _, err := t.Do(ctx, con.ID, proto.Cmd{Argv: argv, User: proto.UserRoot,
				TimeoutSeconds: 1}); err != nil && proto.CodeOf(err) == proto.Unavailable {
				return "", Breached("the container does not answer after %v: %v", argv, err)
			}
		}
	}
	res, err := t.Wait(ctx, con.ID, hunt.ID)
	if err != nil {
		return "", err
	}
	after, err := t.Output(ctx, con.ID, proto.UserRoot, "sha256sum < /.berth/guest")
	switch {
	case err != nil:
		return "", Breached("the container does not work any more: %v", err)
	case after != before:
		return "", Breached("the guest's program has changed")
	case res.Result.Result != nil && res.Result.Result.Stdout != "":
		return "", Breached("%s", res.Result.Result.Stdout)
	}
	return "the guest's program is the same, and no process of it could be written to", nil
}

// plantedLinks prepares the container's root file system for its next start. Root in the container may rename
// anything in its own layer. So most of these actions succeed, and they must be harmless.
func plantedLinks(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	// Until the next start, what succeeds here affects only the container.
	planted, err := t.Output(ctx, con.ID, proto.UserRoot, `
		ok=""; hit() { if "$@" 2>/dev/null; then ok="$ok $*,"; fi; }
		hit mv /.berth /.old-berth; hit ln -s / /.berth; hit mv /proc /.old-proc; hit ln -s /etc /proc
		hit mv /workspace /.old-workspace; hit ln -s /proc/1/root /workspace; hit mv /dev /.old-dev; hit ln -s /workspace /dev
		hit rm -rf /tmp; hit ln -s / /tmp; hit mv /etc/passwd /etc/passwd.old; hit ln -s /proc/1/environ /etc/passwd; echo "$ok"`)
	if err != nil {
		return "", err
	}
	if _, err := t.Stop(ctx, con.ID); err != nil {
		return "", fmt.Errorf("stopping: %w", err)
	}
	_, err = t.Start(ctx, con.ID)
	if err != nil {
		return Refused(err, proto.Unavailable, proto.Unsupported, proto.Conflict, proto.InvalidArgument)
	}
	// On a host there would be other processes, and our own sockets would be missing. Both are names of the guest's
	// program.
	out, err := t.Output(ctx, con.ID, proto.UserRoot,
		`[ "$(cat /proc/1/comm)" = guest ] || [ "$(cat /proc/1/comm)" = berth-guest ] && ls -A /.berth | tr '\n' ' '`)
	if err != nil {
		return "", Breached("after %s it starts as something else: %v", planted, err)
	}
	return "planted" + planted + " and it started as itself, with " + out + " in /.berth", nil
}
