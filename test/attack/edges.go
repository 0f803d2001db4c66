package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth/client"
	"berth/proto"
)

// Groups 42 and 46: a client that stays connected but is silent, and storage quotas to the byte. Quick tests often
// miss both: a peer that vanished without a FIN, and the last byte of a quota.
var _ = register(
	// TCP does not report that a machine has gone. Without pings, such a connection and its resources stay forever.
	Case{
		Group: 42, Name: "websocket/half-open", Slow: true,
		Tries: "begin a command on a websocket and then neither read, write, answer pings nor close, as a machine " +
			"does that has lost its network",
		Wants: "within three minutes the daemon gives the connection up and ends the command; others are served meanwhile",
		Run:   halfOpen,
	},
	// A quota can be exceeded in small steps if it is off by one, or if it is checked only at the beginning of an
	// upload.
	Case{
		Group: 46, Name: "quota/storage-edges",
		Tries: "store files up to the last byte of a key's quota, one byte more, and more after the quota was " +
			"lowered below what is used",
		Wants: "the last byte fits, the next is refused, lowering takes nothing away, and deleting makes room again",
		Run:   quotaStorage,
	},
)

// silence is how long a silent connection may be kept: three pings of 30 s, and a write that takes a minute.
const silence = 3 * time.Minute

// halfOpen keeps its connection open but neither reads nor writes, so pings stay unanswered.
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
	// 0x81 is a complete text message. 0x80 marks it as masked, which clients must do; a mask of zeros does not
	// change the text. The text is shorter than 126 bytes, so one byte holds its length.
	if _, err := conn.Write(append([]byte{0x81, 0x80 | byte(len(message)), 0, 0, 0, 0}, message...)); err != nil {
		return "", err
	}
	began := time.Now()
	for tick := time.NewTicker(time.Second); ; {
		execs, err := t.Execs(ctx, con.ID)
		if err != nil {
			return "", err
		}
		// For any end reason, the command must not continue for a client that has gone.
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

// quotaStorage approaches the limit from both sides.
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
		// Refused, although the previous step reached the limit exactly: equal is allowed, more is not.
		{"one byte more", func() error { return store(1) }, false},
		{"lowering it below what is used", func() error {
			_, err := t.ChangeKey(ctx, key.ID, proto.ChangeKey{Quota: &proto.QuotaChange{StorageBytes: &lower}})
			return err
		}, true},
		{"one byte after that", func() error { return store(1) }, false},
		// A quota below the current use forbids storing, but never reading or deleting. Otherwise the owner could not
		// get below it again.
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
