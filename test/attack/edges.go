package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth/client"
	"berth/proto"
)

// Groups 42 and 46: a client that is there and says nothing any more, and quotas of storage to the byte.
// Both are about edges that a quick test passes by: a peer that vanished without a FIN, and the very last
// byte of a quota.
var _ = register(
	// TCP tells nobody that a machine has gone; without pings, such a connection and what it holds stay
	// for ever.
	Case{
		Group: 42, Name: "websocket/half-open", Slow: true,
		Tries: "begin a command on a websocket and then neither read, write, answer pings nor close, as a machine " +
			"does that has lost its network",
		Wants: "within three minutes the daemon gives the connection up and ends the command; others are served meanwhile",
		Run:   halfOpen,
	},
	// A quota that is off by one, or counted at the beginning of an upload and not at its end, can be gone
	// past in small steps.
	Case{
		Group: 46, Name: "quota/storage-edges",
		Tries: "store files up to the last byte of a key's quota, one byte more, and more after the quota was " +
			"lowered below what is used",
		Wants: "the last byte fits, the next is refused, lowering takes nothing away, and deleting makes room again",
		Run:   quotaStorage,
	},
)

// silence is how long a connection that says nothing may be kept: three pings of 30 s, and a write that takes a minute.
const silence = 3 * time.Minute

// halfOpen keeps its connection open and does nothing with it: no read, so that pings stay unanswered too.
func halfOpen(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	conn, err := t.rawSocket(ctx, con.ID, silence+time.Minute, "")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	message := `{"type":"exec","ref":"1","cmd":{"command":"echo begun; exec sleep 600"}}`
	// 0x81 is a whole text message, 0x80 says that it is masked, as clients must; a mask of zeros leaves
	// the text as it is. The text is shorter than 126 bytes, so one byte holds its length.
	// masked with zeros
	if _, err := conn.Write(append([]byte{0x81, 0x80 | byte(len(message)), 0, 0, 0, 0}, message...)); err != nil {
		return "", err
	}
	began := time.Now()
	for tick := time.NewTicker(time.Second); ; {
		execs, err := t.Execs(ctx, con.ID)
		if err != nil {
			return "", err
		}
		// Whatever the command's end is called, it must not go on for a client that is no more.
		if len(execs) == 1 && execs[0].End != nil {
			return fmt.Sprintf("the command ended as %s after %v", execs[0].End.Reason, time.Since(began).Round(
				time.Second)), t.alive(ctx, con.ID)
		}
		if time.Since(began) > silence {
			return "", Breached("after %v there are %d commands, and none has ended", silence, len(execs))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return "", ctx.Err()
		}
	}
}

// quotaStorage walks along the bound from both sides.
func quotaStorage(ctx context.Context, t *Target) (string, error) {
	const bound = 100_000
	other, key, err := t.as(ctx, proto.CreateKey{Owner: unique("attack-"), Quota: proto.Quota{StorageBytes: bound}})
	if err != nil {
		return "", err
	}
	var stored []string
	store := func(size int) error {
		f, err := other.UploadFile(ctx, client.Upload{Name: "edge", Body: strings.NewReader(strings.Repeat("x", size))})
		if err == nil {
			stored = append(stored, f.ID)
		}
		return err
	}
	other.undo = append(other.undo, func(ctx context.Context) error {
		for _, id := range stored {
			if err := other.DeleteFile(ctx, id); err != nil && proto.CodeOf(err) != proto.NotFound {
				return err
			}
		}
		return nil
	})
	lower := int64(10)
	for i, step := range []struct {
		what string
		do   func() error
		fits bool
	}{
		{"all but one byte", func() error { return store(bound - 1) }, true},
		{"two bytes", func() error { return store(2) }, false},
		{"the last byte", func() error { return store(1) }, true},
		// Refused, although the step before brought the sum to exactly the bound: equal is allowed, more
		// is not.
		{"one byte more", func() error { return store(1) }, false},
		{"lowering it below what is used", func() error {
			_, err := t.ChangeKey(ctx, key.ID, proto.ChangeKey{Quota: &proto.QuotaChange{StorageBytes: &lower}})
			return err
		}, true},
		{"one byte after that", func() error { return store(1) }, false},
		// Lowering a quota below the use takes away the right to store, never to read or delete: else
		// nobody could get below it again.
		{"reading what is there", func() error { _, err := other.File(ctx, stored[0]); return err }, true},
		{"deleting the large one", func() error { return other.DeleteFile(ctx, stored[0]) }, true},
		{"nine bytes beside the one", func() error { return store(9) }, true},
		{"one byte beside the ten", func() error { return store(1) }, false},
	} {
		if err := step.do(); (err == nil) != step.fits {
			return "", Breached("step %d, %s: %v", i+1, step.what, err)
		}
	}
	return "ten steps, to the byte", nil
}
