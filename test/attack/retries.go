package attack

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"berth/proto"
)

// Group 20: the same request again.
// A client that got no answer asks again. Without a key for the request, it pays twice: a mail is sent
// twice, a file appended to twice.
var _ = register(Case{
	Group: 20, Name: "output/retries", Inside: true,
	Tries: "send a command with one idempotency key twenty times at once, again after it was killed, and with " +
		"another command",
	Wants: "it runs once, each answer names that run, and another command under the key is refused",
	Run:   retries,
})

// retries has the command count its runs in a file, which is the one witness that does not depend on what
// the daemon believes.
func retries(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	cmd := proto.Cmd{Command: "echo run >>/workspace/runs; sleep 600", IdempotencyKey: "attack-" + con.ID,
		JobID: "once"}
	const n = 20
	ids, errs := make([]string, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		// At once, since the second request comes before the first has been written down.
		wg.Go(func() {
			e, err := t.Launch(ctx, con.ID, cmd)
			ids[i], errs[i] = e.ID, err
		})
	}
	wg.Wait()
	for i := range n {
		if errs[i] != nil || ids[i] != ids[0] {
			return "", Breached("one key started %s and %s: %v", ids[0], ids[i], errs[i])
		}
	}
	// It has to have left its mark before it is killed, or there would be nothing to count.
	if _, err := t.Output(ctx, con.ID, "", "until test -s /workspace/runs; do sleep 0.05; done"); err != nil {
		return "", err
	}
	if _, err := t.Signal(ctx, con.ID, ids[0], "SIGKILL"); err != nil {
		return "", err
	}
	if _, err := t.Wait(ctx, con.ID, ids[0]); err != nil {
		return "", err
	}
	if e, err := t.Launch(ctx, con.ID, cmd); err != nil || e.ID != ids[0] {
		return "", Breached("after its end the key started %s rather than %s: %v", e.ID, ids[0], err)
	}
	// The same key for something else is a client's bug, and answering with the first one's result would
	// hide it.
	other := cmd
	other.Command = "echo other >>/workspace/runs"
	_, err = t.Launch(ctx, con.ID, other)
	if _, err := Refused(err, proto.Conflict, proto.InvalidArgument); err != nil {
		return "", fmt.Errorf("another command under the key: %w", err)
	}
	runs, err := t.Output(ctx, con.ID, "", "cat /workspace/runs")
	if err != nil || strings.Count(runs, "run") != 1 || strings.Contains(runs, "other") {
		return "", Breached("it ran as %q %v", runs, err)
	}
	return fmt.Sprintf("%d requests were one run", n+1), t.alive(ctx, con.ID)
}
