package sessiontest

import (
	"context"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
)

// idle lets the sweeper stop an unused container, and checks that the next use finds all of its files unchanged,
// whatever range of users its next sandbox has.
func (c conformance) idle(t *testing.T) {
	ctx := context.Background()
	st, s := c.sessionWith(t, session.Config{StopAfter: time.Nanosecond})
	// A command's end is reported a moment before its session is unused.
	stopped := func(when string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			done, err := st.Sessions.Sweep(ctx)
			if err != nil || done.Lost != 0 || time.Now().After(deadline) {
				t.Fatalf("%s: swept %+v, %v", when, done, err)
			}
			if done.Stopped == 1 {
				return
			}
		}
	}
	stopped("as it was made")
	Bash(t, s, "echo kept >/tmp/first; ln /tmp/first /tmp/second; ln -s first /tmp/link; mkdir ~/d")
	if c.class != proto.ClassGVisor { // its kernel has pipes and sockets in its own memory
		Bash(t, s, "mkfifo -m 600 ~/pipe")
	}
	root := func(command string) {
		t.Helper()
		e, err := s.Exec(ctx, proto.Cmd{Command: command, User: proto.UserRoot})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := e.Wait(ctx); err != nil || res.Exec.End.Reason != proto.EndExit || res.Exec.End.ReturnCode != 0 {
			t.Fatalf("%s: %+v %v", command, res, err)
		}
	}
	root("mkdir -m 700 /etc/mine; cp /bin/true /etc/mine/gid; chown 7:70 /etc/mine/gid; chmod 6755 /etc/mine/gid; " +
		"mv /etc/nsswitch.conf /etc/moved; chmod 751 /home")
	const looks = `cat /tmp/first; id; stat -c '%n %F %a %u:%g %h %s %Y' /tmp/* /etc/moved
stat -c '%n %F %a %u:%g %Y' /tmp ~/* /home /etc
ls -A ~ /etc; find / -xdev -not -path '/proc/*' 2>/dev/null | wc -l`
	const rootLooks = `stat -c '%n %F %a %u:%g %Y' /etc/mine /etc/mine/gid >/workspace/seen`
	root(rootLooks)
	look := func() string { return Bash(t, s, looks+"; cat /workspace/seen").Stdout }
	before := look()
	if !strings.HasPrefix(before, "kept\nuid=1000(user)") || !strings.Contains(before, "6755 7:70") {
		t.Fatalf("before: %q", before)
	}
	same := func(when string) {
		t.Helper()
		root(rootLooks)
		if got := look(); got != before {
			t.Errorf("%s:\n%s\nbefore:\n%s", when, got, before)
		}
	}
	for range 2 {
		stopped("after a command")
		same("after a stop")
	}
	stopped("before a restart")
	st.Reopen(t)
	var err error
	if s, err = st.Sessions.Get(Owner, s.ID()); err != nil {
		t.Fatal(err)
	}
	same("after a restart")
	if c.canPause() {
		if err := s.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		same("after a pause")
	}
	if err := s.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	Bash(t, s, "test ! -e /tmp/first -a ! -e /etc/mine -a -e /workspace/seen -a -e /etc/nsswitch.conf")
	stopped("before the end")
}
