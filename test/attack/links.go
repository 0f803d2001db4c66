package attack

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"berth/proto"
)

// Group 2: symbolic links. With links, an unprivileged process can make a privileged one work for it: it names a
// file, and another process opens it. The daemon acts in workspaces as the user, but writes manifests as root.
var _ = register(
	// For any target of a link, the permissions of the requesting user must decide, as if that user's command had
	// followed it.
	Case{
		Group: 2, Name: "links/to-secrets", Inside: true,
		Tries: "read, write, list, archive, edit, move and remove files through links to /etc/shadow, /proc/1/root, " +
			"the guest's socket and a file of the host",
		Wants: "the kernel's permissions of the container's user hold, a removed link takes nothing with it, and " +
			"nothing of the host is reached",
		Run: linksToSecrets,
	},
	// A file that root writes at a place controlled by a user is the classic /tmp race (CWE-59).
	Case{
		Group: 2, Name: "links/manifest", Inside: true,
		Tries: "put a link to a file of the container's root where the daemon writes a job's manifest, and have " +
			"root run a command in that job",
		Wants: "root's file is as it was: the link is replaced, not followed",
		Run:   manifestLink,
	},
	// If a whole directory is swapped, checks of the names in it no longer apply.
	Case{
		Group: 2, Name: "links/job-directory", Inside: true,
		Tries: "put a link to a directory of the container's root where a job's directory was",
		Wants: "the manifest and the job's archive show nothing of that directory, and nothing is written there",
		Run:   jobDirectoryLink,
	},
)

// linkTargets are the targets of links. The ordinary user may not read any of them.
func linkTargets(c *canary) []string {
	return []string{
		"/etc/shadow", "/root/.secret", c.file, "/proc/1/root" + c.file, "/proc/self/root" + c.file, "/proc/1/environ",
		"/proc/1/mem", "/proc/1/fd/3",
		"/.berth/run/guest.sock", "/.berth/run", "/proc/1/root", "/root", c.dir, "../../../../../../../.." + c.file,
		"itself-and-more/..",
	}
}

// linksToSecrets follows each link with each verb: directly, with a slash at the end, and to a file below it.
func linksToSecrets(ctx context.Context, t *Target) (string, error) {
	c, err := newCanary()
	if err != nil {
		return "", err
	}
	defer c.close()
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	// A file that only the container's root may read is a secret of another user in the same container.
	const rootSecret = "only-for-the-containers-root"
	before, err := t.Output(ctx, b.id, proto.UserRoot, "printf "+rootSecret+" >/root/.secret; chmod 600 "+
		"/root/.secret; sha256sum /root/.secret;"+systemState)
	if err != nil {
		return "", err
	}
	tried := 0
	for _, to := range linkTargets(c) {
		link := ""
		for _, v := range verbs {
			// Verbs that replace or remove a link leave none for the next verb.
			if v.replacing() || link == "" {
				if link, err = b.freshLink(ctx, to); err != nil {
					return "", err
				}
			}
			for _, path := range []string{link, link + "/", link + "/secret"} {
				a, err := tryForm(ctx, c, b, v, path)
				if err != nil {
					return "", err
				}
				// The second text is the beginning of /etc/shadow in the base image.
				if bytes.Contains(a.body, []byte(rootSecret)) || bytes.Contains(a.body, []byte("root:*:")) {
					return "", Breached("%s through a link to %s shows what only root may read", v.name, to)
				}
				tried++
			}
		}
	}
	after, err := t.Output(ctx, b.id, proto.UserRoot, "sha256sum /root/.secret;"+systemState)
	if err != nil || before != after {
		return "", Breached("something that root owns changed: before %s after %s %v", before, after, err)
	}
	return fmt.Sprintf("%d attempts through links led nowhere", tried), nil
}

// freshLink creates a symbolic link in the workspace through the API, in the one way that it offers.
func (b box) freshLink(ctx context.Context, to string) (path string, err error) {
	_, err = b.t.Output(ctx, b.id, b.as, "rm -rf /workspace/links && mkdir -p /workspace/links && ln -s "+quoted(to)+
		" /workspace/links/link")
	return "/workspace/links/link", err
}

// quoted returns s as one bash word.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// manifestLink places links where the daemon writes a job's manifest, and runs commands there as root.
func manifestLink(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const target = "/root/.profile"
	if _, err := t.Output(ctx, b.id, proto.UserRoot, "echo '# as root left it' >"+target); err != nil {
		return "", err
	}
	for _, swap := range []string{
		"mkdir -p /workspace/trap /workspace/.berth && ln -sfn " + target + " /workspace/.berth/trap.json",
		"rm -rf /workspace/trap && mkdir /workspace/elsewhere && ln -s /root /workspace/trap && ln -s " + target +
			" /workspace/elsewhere/trap.json",
		"rm -rf /workspace/trap /workspace/.berth && ln -s /workspace/elsewhere /workspace/trap && " +
			"ln -s /workspace/elsewhere /workspace/.berth",
		"rm -rf /workspace/.berth && ln -s /root /workspace/.berth",
	} {
		if _, err := t.Output(ctx, b.id, "", swap); err != nil {
			return "", err
		}
		// The name is random, so that root's own write does not hit a file that is compared afterwards.
		_, err := t.Do(ctx, b.id, proto.Cmd{Command: "echo x >\"$RANDOM\" 2>/dev/null; true", User: proto.UserRoot,
			JobID: "trap", TimeoutSeconds: 60})
		if err != nil && proto.CodeOf(err) == proto.Internal {
			return "", Breached("root's command in such a job: %v", err)
		}
		got, err := t.Output(ctx, b.id, proto.UserRoot, "cat "+target+"; ls /root/trap.json 2>/dev/null; true")
		if err != nil {
			return "", err
		}
		if got != "# as root left it" {
			return "", Breached("the user had root write a manifest where the user may not: after %s: %.200q", swap,
				got)
		}
	}
	return "root's files are as they were", nil
}

// jobDirectoryLink replaces the directory while a command of the job is running, which is the last moment before its
// manifest is written.
func jobDirectoryLink(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	if _, err := t.Output(ctx, b.id, proto.UserRoot, "mkdir -p /root/private; printf hidden "+
		">/root/private/of-root-alone; chmod -R go= /root"); err != nil {
		return "", err
	}
	if _, err := t.Do(ctx, b.id, proto.Cmd{Command: "echo x >f; cd /; rm -rf /workspace/j; ln -s /root/private " +
		"/workspace/j", JobID: "j", TimeoutSeconds: 60}); err != nil {
		return "", err
	}
	// The daemon reads these with more rights than the user has.
	for _, what := range []string{"jobs/j/manifest", "jobs/j/tar", "jobs"} {
		a, err := t.ask(ctx, "GET", b.at(what), nil, nil)
		if err != nil {
			return "", err
		}
		if err := a.refusedOrDone(what); err != nil {
			return "", err
		}
		if bytes.Contains(a.body, []byte("of-root-alone")) || bytes.Contains(a.body, []byte("hidden")) {
			return "", Breached("%s shows what only root may read", what)
		}
	}
	got, err := t.Output(ctx, b.id, proto.UserRoot, "ls -A /root/private")
	if err != nil || got != "of-root-alone" {
		return "", Breached("something was written into root's directory: %q %v", got, err)
	}
	return "the link led nowhere", nil
}
