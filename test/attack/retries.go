package attack

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"berth/proto"
)

// Group 20: the same request again. A client that got no answer sends the request again. Without an idempotency key
// it runs twice: a mail is sent twice, or a file is appended to twice.
var _ = register(Case{
	Group: 20, Name: "output/retries", Inside: true,
	Tries: "send a command with one idempotency key twenty times at once, again after it was killed, and with " +
		"another command",
	Wants: "it runs once, each answer names that run, and another command under the key is refused",
	Run:   retries,
})

// retries lets the command count its runs in a file. That does not depend on the daemon's own records.
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
		// Concurrently, since the second request may come before the first was recorded.
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
	// It must have written its line before it is killed, or there would be nothing to count.
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
	// The same key for another command is a bug of the client. Returning the first result would hide it.
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
