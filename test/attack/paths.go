package attack

import (
	"context"
	"fmt"
	"strings"

	"berth/proto"
)

// Group 1: forms of paths. Path traversal (CWE-22) is the first thing that attackers try. The guest lets the kernel
// resolve paths inside the container, so the form of a path should not matter; the list demonstrates that.
var _ = register(
	// Each form has passed a check that compared text: doubled slashes, escapes, backslashes, overlong UTF-8, NUL,
	// links in /proc.
	Case{
		Group: 1, Name: "paths/forms", Inside: true,
		Tries: "name a file of the host in every form of a path that once fooled somebody, to every verb on files " +
			"and to the editor",
		Wants: "nothing of the host is shown or changed, no answer is an internal error, and the container still works",
		Run:   pathForms,
	},
	// Users are separated inside the container, too: its programs are trustworthy only because root owns them.
	Case{
		Group: 1, Name: "paths/system", Inside: true,
		Tries: "write, replace, move and remove the files that the container's own root owns, as its ordinary user",
		Wants: "all of them are as they were",
		Run:   systemPaths,
	},
)

// formsOf returns ways to write an absolute path that may lead outside. The target is the canary, whose name exists
// only on the host.
func formsOf(path string) []string {
	up := strings.Repeat("../", 24)
	rel := strings.TrimPrefix(path, "/")
	return []string{
		path, "/" + path, "//" + path, "/." + path, path + "/", path + "/.", path + "/..", "/" + up + rel, up + rel,
		"/workspace/" + up + rel, "./" + up + rel, "inputs/" + up + rel, "$INPUT_DIR/" + up + rel,
		strings.ReplaceAll(up, "../", "%2e%2e%2f") + rel, strings.ReplaceAll(up, "../", "%252e%252e%252f") + rel,
		strings.ReplaceAll(up, "/", `\`) + strings.ReplaceAll(rel, "/", `\`), strings.ReplaceAll(up, "../", "..;/") +
			rel,
		strings.ReplaceAll(up, "../", "....//") + rel, strings.ReplaceAll(up, "../", "\u2025/") + rel,
		strings.ReplaceAll(up, "..", "\xc0\xae\xc0\xae") + rel,
		path + "\x00", path + "\x00.txt", "x\x00/../" + path,
		"/proc/1/root" + path, "/proc/self/root" + path, "/proc/thread-self/root" + path, "/proc/1/cwd/" + up + rel,
		"/proc/self/cwd/" + up + rel,
		"/dev/fd/3", "/dev/fd/5/" + up + rel, "/proc/self/fd/8/" + up + rel, "/proc/1/fd/7", "/proc/self/exe",
		"/.berth/run/guest.sock",
		"file://" + path, "~root/" + up + rel, "C:" + path, " ", ".", "..", "/", "", "-rf", strings.Repeat("d/", 3000),
		strings.Repeat("n", 300), "/workspace/" + strings.Repeat("n/../", 500) + up + rel,
	}
}

// pathForms uses each verb on each form, and checks the canary after each request.
func pathForms(ctx context.Context, t *Target) (string, error) {
	c, err := newCanary()
	if err != nil {
		return "", err
	}
	defer c.close()
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	tried := 0
	for _, form := range append(formsOf(c.file), formsOf(c.dir)...) {
		for _, v := range verbs {
			if _, err := tryForm(ctx, c, b, v, form); err != nil {
				return "", err
			}
			tried++
		}
		// The container's root may destroy its own container, which would end the case. So as root the case only uses
		// verbs that read.
		for _, v := range verbs {
			if v.writes {
				continue
			}
			if _, err := tryForm(ctx, c, b.root(), v, form); err != nil {
				return "", err
			}
			tried++
		}
	}
	return fmt.Sprintf("%d requests led nowhere but into the container", tried), t.alive(ctx, b.id)
}

// tryForm uses a verb on a path. It checks both the answer and the canary: reading leaves no trace, and writing
// returns no content.
func tryForm(ctx context.Context, c *canary, b box, v verb, form string) (answer, error) {
	what := fmt.Sprintf("%s of %.120q as %s", v.name, form, b.as)
	a, err := v.do(ctx, b, form)
	if err != nil {
		return a, fmt.Errorf("%s: %w", what, err)
	}
	if err := a.refusedOrDone(what); err != nil {
		return a, err
	}
	if err := c.in(what, a.body); err != nil {
		return a, err
	}
	return a, c.unharmed(what)
}

// systemState prints the content, mode and owner of files in the container's root file system, to detect changes.
const systemState = `cd / && sha256sum /etc/shadow /etc/passwd /etc/group /bin/bash /usr/bin/env; stat -c '%n %a %u:%g' /etc/shadow /etc/passwd /etc /root /usr/bin /bin/bash /.berth /.berth/run /.berth/run/guest.sock /proc/1`

// systemPaths tries as the ordinary user, and compares as root.
func systemPaths(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	before, err := t.Output(ctx, b.id, proto.UserRoot, systemState)
	if err != nil {
		return "", err
	}
	refused := 0
	for _, path := range []string{"/etc/shadow", "/etc/passwd", "/etc", "/root", "/usr/bin/env", "/bin/bash", "/.berth",
		"/.berth/run/guest.sock", "/proc/1/mem", "/proc/sysrq-trigger"} {
		for _, v := range verbs {
			a, err := v.do(ctx, b, path)
			if err != nil {
				return "", err
			}
			what := v.name + " of " + path
			if err := a.refusedOrDone(what); err != nil {
				return "", err
			}
			if a.status >= 400 {
				refused++
			}
		}
	}
	after, err := t.Output(ctx, b.id, proto.UserRoot, systemState)
	if err != nil {
		return "", err
	}
	if before != after {
		return "", Breached("the ordinary user changed what root owns: before %s after %s", before, after)
	}
	return fmt.Sprintf("%d attempts were refused, nothing changed", refused), nil
}
