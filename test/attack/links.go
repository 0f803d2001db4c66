package attack

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"berth/proto"
)

// Group 2: symbolic links.
// Links are how an unprivileged process makes a privileged one work for it: it names a file, and another
// one opens it. The daemon acts in workspaces for their users, and keeps books as root.
var _ = register(
	// Whatever a link leads to, the permissions of the user who asks must decide, as if a command of
	// theirs had followed it.
	Case{
		Group: 2, Name: "links/to-secrets", Inside: true,
		Tries: "read, write, list, archive, edit, move and remove files through links to /etc/shadow, /proc/1/root, " +
			"the guest's socket and a file of the host",
		Wants: "the kernel's permissions of the container's user hold, a removed link takes nothing with it, and " +
			"nothing of the host is reached",
		Run: linksToSecrets,
	},
	// A file that root writes at a place that a user controls is the classic of /tmp races (CWE-59).
	Case{
		Group: 2, Name: "links/manifest", Inside: true,
		Tries: "put a link to a file of the container's root where the daemon writes a job's manifest, and have " +
			"root run a command in that job",
		Wants: "root's file is as it was: the link is replaced, not followed",
		Run:   manifestLink,
	},
	// A whole directory that is swapped turns every check of the names in it void.
	Case{
		Group: 2, Name: "links/job-directory", Inside: true,
		Tries: "put a link to a directory of the container's root where a job's directory was",
		Wants: "the manifest and the job's archive show nothing of that directory, and nothing is written there",
		Run:   jobDirectoryLink,
	},
)

// linkTargets are what links are made to; those that the ordinary user may read are not among them.
func linkTargets(c *canary) []string {
	return []string{
		"/etc/shadow", "/root/.secret", c.file, "/proc/1/root" + c.file, "/proc/self/root" + c.file, "/proc/1/environ",
		"/proc/1/mem", "/proc/1/fd/3",
		"/.berth/run/guest.sock", "/.berth/run", "/proc/1/root", "/root", c.dir, "../../../../../../../.." + c.file,
		"itself-and-more/..",
	}
}

// linksToSecrets follows each link with each verb, plain, with a slash at its end, and to what is behind
// it.
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
	// What only the container's root may read is a secret too, of another user in the same container.
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
			// Verbs that replace or remove a link leave none for the next one.
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
				// The second is how /etc/shadow begins in the base image.
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

// freshLink makes a symbolic link in the workspace by the one way that the API has to make one.
func (b box) freshLink(ctx context.Context, to string) (path string, err error) {
	_, err = b.t.Output(ctx, b.id, b.as, "rm -rf /workspace/links && mkdir -p /workspace/links && ln -s "+quoted(to)+
		" /workspace/links/link")
	return "/workspace/links/link", err
}

// quoted is s as one word of bash.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// manifestLink leaves links where the daemon writes a job's books, and has root run there.
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
		"mkdir -p /workspace/trap && ln -sfn " + target + " /workspace/trap/manifest.json",
		"rm -rf /workspace/trap && mkdir /workspace/elsewhere && ln -s /root /workspace/trap && ln -s " + target +
			" /workspace/elsewhere/manifest.json",
		"rm -rf /workspace/trap && ln -s /workspace/elsewhere /workspace/trap",
	} {
		if _, err := t.Output(ctx, b.id, "", swap); err != nil {
			return "", err
		}
		// Its name is random, so that root's own writing hits nothing that is compared afterwards.
		_, err := t.Do(ctx, b.id, proto.Cmd{Command: "echo x >\"$RANDOM\" 2>/dev/null; true", User: proto.UserRoot,
			JobID: "trap", TimeoutSeconds: 60})
		if err != nil && proto.CodeOf(err) == proto.Internal {
			return "", Breached("root's command in such a job: %v", err)
		}
		got, err := t.Output(ctx, b.id, proto.UserRoot, "cat "+target+"; ls /root/manifest.json 2>/dev/null; true")
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

// jobDirectoryLink replaces the directory while a command of the job is running, the last moment before
// its books are made.
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
	// These are read by the daemon with more rights than the user has.
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
